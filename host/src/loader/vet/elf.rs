//! ELF: what the dynamic linker of Linux relies on.

use std::collections::BTreeSet;

use dsh_plugin_api::abi::META_SECTION;
use dsh_plugin_api::abi_stable::library::{AbiHeader, ROOT_MODULE_LOADER_NAME};
use object::elf::{self, Machine};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, FileKind};

use super::{Unfit, damaged, other_target};

#[cfg(target_pointer_width = "64")]
type Header = elf::FileHeader64<Endianness>;
#[cfg(target_pointer_width = "32")]
type Header = elf::FileHeader32<Endianness>;

const HOST_KIND: FileKind = if cfg!(target_pointer_width = "64") { FileKind::Elf64 } else { FileKind::Elf32 };

/// Names as in `std::env::consts::ARCH`.
const MACHINES: [(Machine, &str); 12] = [
    (elf::EM_X86_64, "x86_64"),
    (elf::EM_AARCH64, "aarch64"),
    (elf::EM_386, "x86"),
    (elf::EM_ARM, "arm"),
    (elf::EM_RISCV, if cfg!(target_pointer_width = "64") { "riscv64" } else { "riscv32" }),
    (elf::EM_PPC64, "powerpc64"),
    (elf::EM_PPC, "powerpc"),
    (elf::EM_S390, "s390x"),
    (elf::EM_LOONGARCH, "loongarch64"),
    (elf::EM_MIPS, "mips"),
    (elf::EM_SPARCV9, "sparc64"),
    (elf::EM_BPF, "bpf"),
];

/// Checks a file of that kind and returns its metadata section.
pub(super) fn vet(kind: FileKind, bytes: &[u8]) -> Result<Option<&[u8]>, Unfit> {
    // The machine stands at the same place in both classes and tells a person more than the class does.
    let endian = match bytes.get(elf_offset::DATA) {
        Some(&data) if data == elf::ELFDATA2LSB.0 => Endianness::Little,
        Some(&data) if data == elf::ELFDATA2MSB.0 => Endianness::Big,
        _ => return Err(damaged("the byte order in its header is neither little nor big endian")),
    };
    let machine = bytes.get(elf_offset::MACHINE..elf_offset::MACHINE + 2).and_then(|pair| pair.try_into().ok());
    let machine = machine.ok_or_else(|| damaged("it ends inside the ELF header"))?;
    let machine = if endian == Endianness::Little { u16::from_le_bytes(machine) } else { u16::from_be_bytes(machine) };
    let name = MACHINES.iter().find(|(known, _)| known.0 == machine).map(|(_, name)| *name);
    let word = if kind == FileKind::Elf64 { "64-bit" } else { "32-bit" };
    let order = if endian == Endianness::Little { "little-endian" } else { "big-endian" };
    if name != Some(std::env::consts::ARCH) {
        return Err(other_target(name.map_or_else(|| format!("machine number {machine} ({word})"), str::to_owned)));
    }
    if kind != HOST_KIND || (endian == Endianness::Little) != cfg!(target_endian = "little") {
        return Err(other_target(format!("a {word} {order} form of {}", std::env::consts::ARCH)));
    }
    let header = Header::parse(bytes).map_err(damaged)?;
    let abi = header.e_ident().os_abi;
    if cfg!(target_os = "linux") && abi != elf::ELFOSABI_SYSV && abi != elf::ELFOSABI_GNU {
        return Err(other_target(format!("another system (ELF OS ABI {})", abi.0)));
    }
    match header.e_type(endian) {
        elf::ET_DYN => {}
        elf::ET_REL => return Err(Unfit::NotShared("an object file that was not linked")),
        elf::ET_EXEC => return Err(Unfit::NotShared("an executable")),
        elf::ET_CORE => return Err(Unfit::NotShared("a core dump")),
        _ => return Err(Unfit::NotShared("an ELF file of an unknown type")),
    }
    let loads = loads(header, endian, bytes)?;
    sections(header, endian, bytes, &loads)
}

/// Offsets that both classes share.
mod elf_offset {
    pub(super) const DATA: usize = 5;
    pub(super) const MACHINE: usize = 18;
}

/// A loadable segment: a range of the file, and the range of memory that it becomes.
struct Load {
    offset: u64,
    file_end: u64,
    start: u64,
    end: u64,
}

impl Load {
    /// Whether bytes of the file end up at an address.
    fn maps(&self, offset: u64, size: u64, address: u64) -> bool {
        let end = offset.saturating_add(size);
        offset >= self.offset && end <= self.file_end && address.wrapping_sub(self.start) == offset - self.offset
    }
}

/// Every segment lies inside the file, the loadable ones make sense, and the linker finds the others in them.
fn loads<E: FileHeader>(header: &E, endian: E::Endian, bytes: &[u8]) -> Result<Vec<Load>, Unfit> {
    let segments = header.program_headers(endian, bytes).map_err(damaged)?;
    let mut loads: Vec<Load> = Vec::new();
    for segment in segments {
        let (offset, size) = segment.file_range(endian);
        let file_end = offset.checked_add(size).filter(|end| *end <= bytes.len() as u64);
        let file_end = file_end.ok_or_else(|| {
            let length = bytes.len();
            damaged(format_args!("a segment needs {size} bytes from offset {offset}, the file has {length} bytes"))
        })?;
        match segment.p_type(endian) {
            elf::PT_INTERP => return Err(Unfit::NotShared("an executable")),
            elf::PT_LOAD => {}
            _ => continue,
        }
        let start: u64 = segment.p_vaddr(endian).into();
        let memory: u64 = segment.p_memsz(endian).into();
        let align = segment.p_align(endian).into().max(1);
        let previous = loads.last().map_or(0, |load| load.end);
        match start.checked_add(memory).filter(|_| size <= memory) {
            Some(end) if start >= previous && align.is_power_of_two() && start % align == offset % align => {
                loads.push(Load { offset, file_end, start, end });
            }
            _ => return Err(damaged(format_args!("the segment at offset {offset} makes no sense"))),
        }
    }
    if !segments.iter().any(|segment| segment.p_type(endian) == elf::PT_DYNAMIC) {
        return Err(Unfit::NotShared("a statically linked file"));
    }
    for segment in segments {
        let used = [elf::PT_PHDR, elf::PT_DYNAMIC, elf::PT_TLS, elf::PT_GNU_RELRO, elf::PT_GNU_EH_FRAME];
        let (offset, size) = segment.file_range(endian);
        let address: u64 = segment.p_vaddr(endian).into();
        let end = address.saturating_add(segment.p_memsz(endian).into());
        let rounded = |load: &Load| load.end.checked_next_multiple_of(LARGEST_PAGE).unwrap_or(u64::MAX);
        let mapped = |load: &Load| load.maps(offset, size, address) && end <= rounded(load);
        if size > 0 && used.contains(&segment.p_type(endian)) && !loads.iter().any(mapped) {
            return Err(damaged(format_args!("the segment at offset {offset} is not where it should be in memory")));
        }
    }
    Ok(loads)
}

/// The largest page of any machine that Linux runs on, to which linkers round the end of what becomes read-only.
const LARGEST_PAGE: u64 = 0x1_0000;

/// Every section lies inside the file and, where it is loaded, inside a segment; the addresses that the linker follows
/// lead to sections; the root is exported. Returns the metadata section.
fn sections<'data, E: FileHeader>(
    header: &E,
    endian: E::Endian,
    bytes: &'data [u8],
    loads: &[Load],
) -> Result<Option<&'data [u8]>, Unfit> {
    let sections = header.sections(endian, bytes).map_err(|e| damaged(format_args!("its section table: {e}")))?;
    let mut metadata = None;
    let mut starts = BTreeSet::new();
    for section in sections.iter() {
        let name = sections.section_name(endian, section).map_err(damaged)?;
        let place = |place: &str| damaged(format_args!("the section {} lies {place}", String::from_utf8_lossy(name)));
        let data = section.data(endian, bytes).map_err(|_| place("outside the file"))?;
        if section.sh_flags(endian).contains(elf::SHF_ALLOC) {
            let address: u64 = section.sh_addr(endian).into();
            starts.insert(address);
            if let Some((offset, size)) = section.file_range(endian).filter(|(_, size)| *size > 0)
                && !loads.iter().any(|load| load.maps(offset, size, address))
            {
                return Err(place("outside the segments"));
            }
        }
        if name == META_SECTION.as_bytes() {
            metadata = Some(data);
        }
    }
    if metadata.is_none() {
        return Ok(None);
    }
    dynamic(header, endian, bytes, &starts)?;
    let symbols = sections.symbols(endian, bytes, elf::SHT_DYNSYM).map_err(damaged)?;
    let root = symbols.iter().find(|symbol| {
        symbol.is_definition(endian, symbols.strings())
            && symbols.symbol_name(endian, symbol).is_ok_and(|name| name == ROOT_MODULE_LOADER_NAME.as_bytes())
    });
    match root {
        Some(root) if root.st_size(endian).into() >= size_of::<AbiHeader>() as u64 => Ok(metadata),
        _ => Err(Unfit::NoRoot),
    }
}

/// The linker follows the addresses of the dynamic table without looking where they lead. Each is that of a section;
/// only the initialiser and finaliser may be functions anywhere.
fn dynamic<E: FileHeader>(header: &E, endian: E::Endian, bytes: &[u8], starts: &BTreeSet<u64>) -> Result<(), Unfit> {
    for segment in header.program_headers(endian, bytes).map_err(damaged)? {
        let Some(table) = segment.dynamic(endian, bytes).map_err(damaged)? else { continue };
        let length = table.iter().position(|entry| entry.tag(endian) == elf::DT_NULL);
        let length = length.ok_or_else(|| damaged("its dynamic table has no end"))?;
        for entry in &table[..length] {
            let (tag, value) = (entry.tag(endian), entry.val(endian));
            if entry.is_address(endian) && tag != elf::DT_INIT && tag != elf::DT_FINI && !starts.contains(&value) {
                return Err(damaged(format_args!("an address of its dynamic table ({value:#x}) leads nowhere")));
            }
        }
    }
    Ok(())
}
