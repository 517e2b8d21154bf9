//! The binary; see the library.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Returns freed memory to the system, so that one large request does not stay resident for good.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    kubegc::main()
}
