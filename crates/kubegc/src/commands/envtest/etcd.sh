#!/bin/sh
# The stand-in for etcd is the same program as the one for kube-apiserver, which archives hold once.
KUBEGC_ENVTEST_PROGRAM=etcd exec "${0%/*}/kube-apiserver" "$@"
