//! The archive that test frameworks unpack: a gzip-compressed `tar` of a few regular files.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha512};

/// Directory of the programs in upstream's archives; programs that unpack one ignore it.
const FOLDER: &str = "controller-tools/envtest";
/// Size of a header; contents are padded to a multiple of it.
const BLOCK_BYTES: usize = 512;
/// The largest file size that a header of this format can hold.
const MAXIMUM_BYTES: u64 = 0o77_777_777_777;

/// A program of the archive.
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) contents: &'a [u8],
}

/// Writes the archive, and returns its SHA-512 in hexadecimal. The same entries give the same bytes.
pub(super) fn write<'a>(out: impl Write, entries: impl IntoIterator<Item = Entry<'a>>) -> io::Result<String> {
    let hashing = Hashing { out, hash: Sha512::new() };
    // The archive travels over a local network and is unpacked soon, so speed matters more than size.
    let mut packed = GzEncoder::new(hashing, Compression::fast());
    for entry in entries {
        packed.write_all(&header(entry.name, entry.contents.len())?)?;
        packed.write_all(entry.contents)?;
        let padding = entry.contents.len().next_multiple_of(BLOCK_BYTES) - entry.contents.len();
        packed.write_all(&[0; BLOCK_BYTES][..padding])?;
    }
    packed.write_all(&[0; 2 * BLOCK_BYTES])?;
    let mut hashing = packed.finish()?;
    hashing.out.flush()?;
    Ok(gc_types::hexadecimal(&hashing.hash.finalize()))
}

/// Returns a header in the ustar format: an executable file of root, with time 0.
fn header(name: &str, size_bytes: usize) -> io::Result<[u8; BLOCK_BYTES]> {
    let size = u64::try_from(size_bytes).unwrap_or(u64::MAX);
    if size > MAXIMUM_BYTES {
        return Err(io::Error::other(format!("{name} is larger than 8 GiB")));
    }
    let mut block = [0; BLOCK_BYTES];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, &format!("{FOLDER}/{name}"));
    put(100, "0000755\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    // The checksum counts its own field as blanks.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

/// Writes through to another writer, and hashes what it writes.
struct Hashing<W> {
    out: W,
    hash: Sha512,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    /// The real `tar` lists and unpacks the archive, whatever the sizes are modulo a block.
    #[test]
    fn tar_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let contents: Vec<Vec<u8>> = [0, 1, 511, 512, 513].map(|size| vec![b'x'; size]).to_vec();
        let names = ["kube-apiserver", "etcd", "kubectl", "b", "c"];
        let entries = || names.iter().zip(&contents).map(|(name, contents)| Entry { name, contents });
        let hash = write(std::fs::File::create(&path).unwrap(), entries()).unwrap();
        let done = std::process::Command::new("tar")
            .arg("-xzf")
            .arg(&path)
            .arg("-C")
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
        for (name, contents) in names.iter().zip(&contents) {
            assert_eq!(&std::fs::read(folder.path().join(FOLDER).join(name)).unwrap(), contents, "{name}");
        }
        assert_eq!(hash.len(), 128);
        let mut again = Vec::new();
        assert_eq!(write(&mut again, entries()).unwrap(), hash);
        assert_eq!(std::fs::read(&path).unwrap(), again, "the same entries give the same bytes");
    }
}
