//! Real compositions: the built `dsh`, the built adapters, real files. One module per subject.

mod loading;
