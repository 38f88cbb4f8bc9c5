//! ELF: what the dynamic linker of Linux relies on.

use std::mem::size_of;

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
    segments(header, endian, bytes)?;
    sections(header, endian, bytes)
}

/// Offsets that both classes share.
mod elf_offset {
    pub(super) const DATA: usize = 5;
    pub(super) const MACHINE: usize = 18;
}

/// A loadable segment, in memory.
struct Load {
    start: u64,
    end: u64,
}

fn segments<E: FileHeader>(header: &E, endian: E::Endian, bytes: &[u8]) -> Result<(), Unfit> {
    let segments = header.program_headers(endian, bytes).map_err(damaged)?;
    let mut loads: Vec<Load> = Vec::new();
    for segment in segments {
        let kind = segment.p_type(endian);
        if kind == elf::PT_INTERP {
            return Err(Unfit::NotShared("an executable"));
        }
        let (offset, size) = segment.file_range(endian);
        let end = offset.checked_add(size).filter(|end| *end <= bytes.len() as u64);
        if end.is_none() {
            let length = bytes.len();
            return Err(damaged(format_args!(
                "a segment needs {size} bytes from offset {offset}, the file has {length} bytes"
            )));
        }
        if kind != elf::PT_LOAD {
            continue;
        }
        let start: u64 = segment.p_vaddr(endian).into();
        let memory: u64 = segment.p_memsz(endian).into();
        let align = segment.p_align(endian).into().max(1);
        let end = start.checked_add(memory).filter(|_| size <= memory);
        let previous = loads.last().map_or(0, |load| load.end);
        match end {
            Some(end) if start >= previous && align.is_power_of_two() && start % align == offset % align => {
                loads.push(Load { start, end });
            }
            _ => return Err(damaged(format_args!("the segment at offset {offset} makes no sense"))),
        }
    }
    if loads.is_empty() {
        return Err(damaged("it has no loadable segment"));
    }
    dynamic(segments, endian, bytes, &loads)
}

/// The linker follows the addresses of the dynamic table without looking where they lead.
fn dynamic<S: ProgramHeader>(segments: &[S], endian: S::Endian, bytes: &[u8], loads: &[Load]) -> Result<(), Unfit> {
    let segment = segments.iter().find(|segment| segment.p_type(endian) == elf::PT_DYNAMIC);
    let segment = segment.ok_or_else(|| Unfit::NotShared("a statically linked file"))?;
    let table = segment.dynamic(endian, bytes).map_err(damaged)?.unwrap_or_default();
    let mut ended = false;
    for entry in table {
        let (tag, value) = (entry.tag(endian), entry.val(endian));
        if tag == elf::DT_NULL {
            ended = true;
            break;
        }
        if entry.is_address(endian) && !loads.iter().any(|load| (load.start..=load.end).contains(&value)) {
            return Err(damaged(format_args!("an address of its dynamic table ({value:#x}) lies in no segment")));
        }
    }
    if ended { Ok(()) } else { Err(damaged("its dynamic table has no end")) }
}

/// Checks that all sections lie inside the file and that the root is exported; returns the metadata section.
fn sections<'data, E: FileHeader>(
    header: &E,
    endian: E::Endian,
    bytes: &'data [u8],
) -> Result<Option<&'data [u8]>, Unfit> {
    let sections = header.sections(endian, bytes).map_err(|e| damaged(format_args!("its section table: {e}")))?;
    let mut metadata = None;
    for section in sections.iter() {
        let name = sections.section_name(endian, section).map_err(damaged)?;
        let data = section.data(endian, bytes);
        let data = data.map_err(|_| {
            damaged(format_args!("the section {} lies outside the file", String::from_utf8_lossy(name)))
        })?;
        if name == META_SECTION.as_bytes() {
            metadata = Some(data);
        }
    }
    if metadata.is_none() {
        return Ok(None);
    }
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
