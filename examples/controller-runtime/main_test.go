// The operator against envtest, whose programs $KUBEBUILDER_ASSETS names; see ../README.md.
package main

import (
	"context"
	"os"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	patience = 30 * time.Second
	pause    = 20 * time.Millisecond
)

// start runs the operator against a control plane of its own until the test ends.
func start(t *testing.T) client.Client {
	t.Helper()
	environment := &envtest.Environment{
		CRDInstallOptions: envtest.CRDInstallOptions{Paths: []string{"../backups.json"}, ErrorIfPathMissing: true},
	}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = environment.Stop() })
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := setUp(manager); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	direct, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return direct
}

func until(t *testing.T, what string, condition func() (bool, error)) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		met, err := condition()
		if err != nil {
			t.Fatal(what, err)
		}
		if met {
			return
		}
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

func TestABackupFromItsCreationToItsDeletion(t *testing.T) {
	ctx := context.Background()
	kube := start(t)
	exists := func(name string, object client.Object) func() (bool, error) {
		return func() (bool, error) {
			err := kube.Get(ctx, types.NamespacedName{Namespace: "default", Name: name}, object)
			return err == nil, client.IgnoreNotFound(err)
		}
	}
	isGone := func(name string, object client.Object) func() (bool, error) {
		return func() (bool, error) {
			found, err := exists(name, object)()
			return !found, err
		}
	}
	backup := newBackup()
	backup.SetName("nightly")
	backup.SetNamespace("default")
	if err := unstructured.SetNestedMap(backup.Object, map[string]any{"bucket": "nightly", "keepSeconds": int64(3600)}, "spec"); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(ctx, backup); err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{}
	until(t, "the operator has created the Job", exists("nightly", job))
	if owners := job.OwnerReferences; len(owners) != 1 || owners[0].UID != backup.GetUID() {
		t.Fatalf("the Job is owned by %v", owners)
	}

	// The Backup is deleted: the operator releases the bucket.
	if err := kube.Delete(ctx, backup); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	until(t, "the finalizer is removed", isGone("nightly", newBackup()))
	until(t, "the bucket is released", exists("released-nightly", &corev1.ConfigMap{}))

	// kube-apiserver collects no garbage; kubegc's stand-in does where it is asked to.
	if os.Getenv("KUBEGC_ENVTEST_CONTROLLERS") != "" {
		until(t, "the Job goes with its Backup", isGone("nightly", &batchv1.Job{}))
	}
}
