//! The OCI image that scripts/image makes from a binary: its layout, its digests, and its reproducibility.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::repository;

/// A static binary that is available without a release build of kubegc.
const BUSYBOX: &str = "/bin/busybox";

fn image(binary: &Path, output: &Path) -> Output {
    let mut command = Command::new(repository().join("scripts/image"));
    command.arg("--binary").arg(binary).arg("--output").arg(output).arg("--name=kubegc:9.8.7");
    command.output().expect("python3 runs the script")
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", gc_types::hexadecimal(&Sha256::digest(bytes)))
}

/// Returns the output of a command.
fn printed(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Returns the blob that a descriptor names in the layout, after checking digest and size.
fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
    let name = descriptor["digest"].as_str().unwrap();
    let bytes = std::fs::read(layout.join("blobs").join(name.replace(':', "/"))).unwrap();
    assert_eq!(
        (digest(&bytes), json!(bytes.len())),
        (name.to_owned(), descriptor["size"].clone()),
        "{descriptor}"
    );
    bytes
}

#[test]
fn the_image_is_an_oci_layout_of_one_static_binary() {
    if !Path::new(BUSYBOX).exists() {
        assert!(std::env::var_os("CI").is_none(), "no {BUSYBOX}, and CI must have it (scripts/setup)");
        eprintln!("SKIPPED: no {BUSYBOX} (package busybox-static)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first.tar"), folder.path().join("second.tar"));
    for file in [&first, &second] {
        let output = image(Path::new(BUSYBOX), file);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(
        std::fs::read(&first).unwrap(),
        std::fs::read(&second).unwrap(),
        "the same binary, the same image"
    );

    let layout = folder.path().join("layout");
    std::fs::create_dir(&layout).unwrap();
    printed(Command::new("tar").arg("-xf").arg(&first).arg("-C").arg(&layout));
    let read =
        |file: &str| -> Value { serde_json::from_slice(&std::fs::read(layout.join(file)).unwrap()).unwrap() };
    assert_eq!(read("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}));
    let index = read("index.json");
    let [descriptor] = index["manifests"].as_array().unwrap().as_slice() else { panic!("{index}") };
    assert_eq!(descriptor["annotations"]["io.containerd.image.name"], "docker.io/library/kubegc:9.8.7");
    assert_eq!(descriptor["annotations"]["org.opencontainers.image.ref.name"], "9.8.7");
    let manifest: Value = serde_json::from_slice(&blob(&layout, descriptor)).unwrap();
    assert_eq!(manifest["mediaType"], "application/vnd.oci.image.manifest.v1+json");
    let config: Value = serde_json::from_slice(&blob(&layout, &manifest["config"])).unwrap();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    assert_eq!((&config["architecture"], &config["os"]), (&json!(architecture), &json!("linux")));
    assert_eq!(
        (&config["config"]["User"], &config["config"]["Entrypoint"]),
        (&json!("65532:65532"), &json!(["/kubegc"]))
    );
    let [layer] = manifest["layers"].as_array().unwrap().as_slice() else { panic!("{manifest}") };
    let packed = folder.path().join("layer.tar.gz");
    std::fs::write(&packed, blob(&layout, layer)).unwrap();
    let unpacked = printed(Command::new("gzip").arg("-dc").arg(&packed));
    assert_eq!(config["rootfs"]["diff_ids"], json!([digest(&unpacked)]));
    let listed = printed(Command::new("tar").arg("-tzf").arg(&packed));
    assert_eq!(String::from_utf8(listed).unwrap(), "kubegc\netc/\netc/passwd\netc/group\ntmp/\n");
    let binary = printed(Command::new("tar").arg("-xzOf").arg(&packed).arg("kubegc"));
    assert_eq!(digest(&binary), digest(&std::fs::read(BUSYBOX).unwrap()));
}

/// An image from scratch has no dynamic linker.
#[test]
fn what_is_not_static_makes_no_image() {
    let folder = tempfile::tempdir().unwrap();
    let output = image(Path::new(env!("CARGO_BIN_EXE_kubegc")), &folder.path().join("image.tar"));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the binary is not static: it asks for a dynamic linker"), "{said}");
    assert!(!folder.path().join("image.tar").exists());
}
