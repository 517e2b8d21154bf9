//! Full names of images: the meaning of a short or old name to a runtime.

use std::borrow::Cow;

const DOCKER: &str = "docker.io";
const OLD_DOCKER: &str = "index.docker.io";
const OFFICIAL: &str = "library";

/// Returns the full name of a reference by tag or digest: adds the registry and the folder that names of Docker Hub omit, and the
/// tag `latest` if there is neither tag nor digest. A tag beside a digest is ignored.
///
/// `busybox`, `docker.io/busybox` and `index.docker.io/library/busybox:latest` are `docker.io/library/busybox:latest`.
pub(super) fn full_name(reference: &str) -> Cow<'_, str> {
    let (path, tag, digest) = parts(reference);
    match (full_path(path), tag, digest) {
        (Cow::Borrowed(_), Some(_), None) | (Cow::Borrowed(_), None, Some(_)) => Cow::Borrowed(reference),
        (path, _, Some(digest)) => Cow::Owned(format!("{path}@{digest}")),
        (path, Some(tag), None) => Cow::Owned(format!("{path}:{tag}")),
        (path, None, None) => Cow::Owned(format!("{path}:latest")),
    }
}

/// Returns the full name of a repository, with a tag or digest if it has one.
pub(super) fn full_repository(name: &str) -> Cow<'_, str> {
    let (path, ..) = parts(name);
    match full_path(path) {
        Cow::Borrowed(_) => Cow::Borrowed(name),
        Cow::Owned(path_in_full) => Cow::Owned(path_in_full + name.get(path.len()..).unwrap_or_default()),
    }
}

/// Splits a reference into path, tag and digest.
fn parts(reference: &str) -> (&str, Option<&str>, Option<&str>) {
    let (named, digest) = match reference.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (reference, None),
    };
    match named.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag), digest),
        _ => (named, None, digest),
    }
}

/// Returns the full path. The registry is the first part if that looks like a host, and otherwise Docker Hub.
fn full_path(path: &str) -> Cow<'_, str> {
    let (registry, rest) = match path.split_once('/') {
        Some((first, rest)) if is_registry(first) => (first, rest),
        _ => ("", path),
    };
    let is_docker = matches!(registry, "" | DOCKER | OLD_DOCKER);
    match (registry, rest.contains('/')) {
        (DOCKER, true) => Cow::Borrowed(path),
        (_, true) if is_docker => Cow::Owned(format!("{DOCKER}/{rest}")),
        // A pattern for everything on Docker Hub.
        (OLD_DOCKER, false) if rest.starts_with('*') => Cow::Owned(format!("{DOCKER}/{rest}")),
        (_, false) if is_docker => Cow::Owned(format!("{DOCKER}/{OFFICIAL}/{rest}")),
        _ => Cow::Borrowed(path),
    }
}

fn is_registry(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.bytes().any(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_old_names_mean_docker_hub() {
        for (reference, expected) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1", "docker.io/library/nginx:1"),
            ("docker.io/nginx:1", "docker.io/library/nginx:1"),
            ("index.docker.io/nginx:1", "docker.io/library/nginx:1"),
            ("index.docker.io/library/nginx:1", "docker.io/library/nginx:1"),
            ("docker.io/library/nginx:1", "docker.io/library/nginx:1"),
            ("team/app", "docker.io/team/app:latest"),
            ("docker.io/team/app", "docker.io/team/app:latest"),
            ("localhost/app:1", "localhost/app:1"),
            ("registry:5000/app", "registry:5000/app:latest"),
            ("registry.example/app:1", "registry.example/app:1"),
            ("registry.example/team/app:1", "registry.example/team/app:1"),
            ("nginx:1@sha512:beef", "docker.io/library/nginx@sha512:beef"),
            ("registry.example/app@sha512:beef", "registry.example/app@sha512:beef"),
        ] {
            assert_eq!(full_name(reference), expected, "{reference}");
            assert_eq!(full_name(expected), expected);
        }
        for (name, expected) in [
            ("nginx", "docker.io/library/nginx"),
            ("docker.io/nginx:1", "docker.io/library/nginx:1"),
            ("index.docker.io/team/*", "docker.io/team/*"),
            ("index.docker.io/*", "docker.io/*"),
            ("registry.example/*", "registry.example/*"),
            ("nginx@sha256:12", "docker.io/library/nginx@sha256:12"),
        ] {
            assert_eq!(full_repository(name), expected, "{name}");
        }
    }
}
