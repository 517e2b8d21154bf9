//! Every verdict that is not about owners: pods, jobs, certificates, volumes, nodes, leases, namespaces, images, containers.
