// An operator with controller-runtime: for each Backup a Job, and a bucket that is released when the Backup is deleted.
package main

import (
	"context"
	"os"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

const finalizer = "example.com/bucket"

func newBackup() *unstructured.Unstructured {
	backup := &unstructured.Unstructured{}
	backup.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Backup"})
	return backup
}

type reconciler struct {
	client.Client
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	backup := newBackup()
	if err := r.Get(ctx, request.NamespacedName, backup); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !backup.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, r.release(ctx, backup)
	}
	if controllerutil.AddFinalizer(backup, finalizer) {
		// The change comes back as an update, which creates the Job.
		return ctrl.Result{}, r.Update(ctx, backup)
	}
	return ctrl.Result{}, r.createJob(ctx, backup)
}

func (r *reconciler) createJob(ctx context.Context, backup *unstructured.Unstructured) error {
	seconds, _, err := unstructured.NestedInt64(backup.Object, "spec", "keepSeconds")
	if err != nil {
		return err
	}
	keep := int32(seconds)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: backup.GetName(), Namespace: backup.GetNamespace()}}
	job.Spec.TTLSecondsAfterFinished = &keep
	job.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "backup", Image: "example.com/backup:1"}},
	}
	// The owner reference: garbage collection deletes the Job when the Backup is gone.
	if err := controllerutil.SetControllerReference(backup, job, r.Scheme()); err != nil {
		return err
	}
	return ignoreAlreadyExists(r.Create(ctx, job))
}

func (r *reconciler) release(ctx context.Context, backup *unstructured.Unstructured) error {
	if !controllerutil.ContainsFinalizer(backup, finalizer) {
		return nil
	}
	bucket, _, err := unstructured.NestedString(backup.Object, "spec", "bucket")
	if err != nil {
		return err
	}
	// What is outside of Kubernetes needs a finalizer; here a ConfigMap stands for it.
	released := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "released-" + bucket, Namespace: backup.GetNamespace()}}
	if err := ignoreAlreadyExists(r.Create(ctx, released)); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(backup, finalizer)
	return client.IgnoreNotFound(r.Update(ctx, backup))
}

func ignoreAlreadyExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func setUp(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).
		For(newBackup()).
		Owns(&batchv1.Job{}).
		Complete(&reconciler{Client: manager.GetClient()})
}

func main() {
	ctrl.SetLogger(zap.New())
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err == nil {
		err = setUp(manager)
	}
	if err == nil {
		err = manager.Start(ctrl.SetupSignalHandler())
	}
	if err != nil {
		ctrl.Log.Error(err, "the operator has ended")
		os.Exit(1)
	}
}
