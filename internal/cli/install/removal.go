package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/installer"
)

// removal deletes objects of a cluster, prints that, and records them. In a dry run it only prints what it would do.
type removal struct {
	*options.Global
	in      *Cluster
	force   bool
	deleted []*unstructured.Unstructured
	release installation.Release // of Helm, of an operator that goes all the same
}

// delete deletes an object if it exists, and waits until it is gone.
func (r *removal) delete(ctx context.Context, of installation.Reference) error {
	object, err := r.in.Get(ctx, of)
	if err != nil || object == nil {
		return err
	}
	if r.DryRun {
		r.Say("would delete %s", of)
		return nil
	}
	if _, err := r.in.Delete(ctx, of); err != nil {
		return err
	}
	r.deleted = append(r.deleted, object)
	return r.awaitDeletion(ctx, of, object.GetUID())
}

// deleteOf deletes an object if it has a label with the name of its owner: one that has not may be somebody else's of the same name.
func (r *removal) deleteOf(ctx context.Context, of installation.Reference, label, owner string) error {
	object, err := r.in.Get(ctx, of)
	if err != nil || object == nil {
		return err
	}
	if value, labelled := object.GetLabels()[label]; !labelled || value != owner {
		r.Note("%s stays in %s: it has no label %s=%s.", of, r.in.Server(), label, owner)
		return nil
	}
	return r.delete(ctx, of)
}

func (r *removal) awaitDeletion(ctx context.Context, of installation.Reference, uid types.UID) error {
	progress := r.Progress()
	defer progress.Close()
	progress.Wait(of.String(), "waiting until it is gone")
	if err := r.in.AwaitDeletion(ctx, of, uid); err != nil {
		return err
	}
	progress.Done(of.String(), "deleted")
	return nil
}

// deleteAll deletes objects in their order. CustomResourceDefinitions of which there are objects, or which others have installed, and
// namespaces in which there is something of others, stay.
func (r *removal) deleteAll(ctx context.Context, refs []installation.Reference) error {
	for _, of := range refs {
		switch of.GroupVersionKind {
		case installation.KindNamespace:
			if err := r.deleteNamespaceIfEmpty(ctx, of.Name); err != nil {
				return err
			}
			continue
		case installation.KindCRD:
			reason, err := r.reasonToStay(ctx, of)
			if err != nil {
				return err
			}
			if reason != "" {
				r.Note("%s stays: %s.", of, reason)
				continue
			}
		}
		if err := r.delete(ctx, of); err != nil {
			return err
		}
	}
	return nil
}

// reasonToStay is why a CustomResourceDefinition is not deleted; empty if it is, or there is none.
func (r *removal) reasonToStay(ctx context.Context, of installation.Reference) (string, error) {
	definition, err := r.in.Get(ctx, of)
	if err != nil || definition == nil {
		return "", err
	}
	if of.Name == installation.CRDClusterProperties && !slices.ContainsFunc(definition.GetManagedFields(), isOurs) {
		return "others may use it, too", nil // another project of the SIG has installed it
	}
	used, err := r.isUsed(ctx, definition)
	if err != nil || !used {
		return "", err
	}
	return "there are objects of this kind", nil
}

// isOurs reports whether fields of a CustomResourceDefinition were written by the operator of agents, or by an agent that runs without one.
func isOurs(fields metav1.ManagedFieldsEntry) bool {
	return fields.Manager == fleet.KlusterletOperatorUserAgent || fields.Manager == fleet.AgentUserAgent
}

// isUsed reports whether there are objects of a CustomResourceDefinition.
func (r *removal) isUsed(ctx context.Context, definition *unstructured.Unstructured) (bool, error) {
	kinds, err := installation.KindsOf(definition)
	if err != nil {
		return false, err
	}
	for _, kind := range kinds {
		if r.DryRun && (kind == installation.KindKlusterlet || kind == installation.KindClusterManager) {
			continue // what there is would be deleted before
		}
		found, err := r.in.List(ctx, kind, "", "")
		if err != nil || len(found) > 0 {
			return len(found) > 0, err
		}
	}
	return false, nil
}

// deleteNamespace deletes a namespace with all that is in it.
func (r *removal) deleteNamespace(ctx context.Context, name string) error {
	return r.delete(ctx, installation.Reference{GroupVersionKind: installation.KindNamespace, Name: name})
}

// deleteNamespaceIfEmpty deletes a namespace unless something of others is in it: it may have been there before.
func (r *removal) deleteNamespaceIfEmpty(ctx context.Context, name string) error {
	others, err := r.in.Remaining(ctx, name)
	return r.deleteNamespaceWithout(ctx, name, others, err)
}

// deleteNamespaceOfCluster deletes the namespace of a cluster unless something of others is in it, of whatever kind: the hub may have found
// it, with what runs the cluster itself.
func (r *removal) deleteNamespaceOfCluster(ctx context.Context, name string) error {
	others, err := r.in.Contents(ctx, name)
	return r.deleteNamespaceWithout(ctx, name, others, err)
}

func (r *removal) deleteNamespaceWithout(ctx context.Context, name string, others []string, err error) error {
	if err != nil {
		return err
	}
	if len(others) > 0 && !r.DryRun {
		r.Note("Namespace %s stays: it has %s.", name, strings.Join(others, ", "))
		return nil
	}
	return r.deleteNamespace(ctx, name)
}

// checkOperator refuses to remove an operator that another tool keeps, unless --force insists: that would make it again, or lose track of
// it. rest is what else the command removes.
func (r *removal) checkOperator(ctx context.Context, operator, rest string) error {
	running, err := r.in.Deployed(ctx, fleet.NamespaceOperators, operator)
	if err != nil {
		return err
	}
	of := installation.Reference{GroupVersionKind: installation.KindDeployment, Namespace: fleet.NamespaceOperators, Name: operator}
	by := running.Installer()
	if by.Name != "" && !r.force {
		does := "would lose track of it"
		if by.Restores {
			does = "makes it again"
		}
		return fmt.Errorf("the operator would go, too, and %s is kept by %s, which %s. Remove only %s with --purge-operator=false, and then, "+
			"for the operator, %s. --force removes both all the same", of, by.Name, does, rest, by.Uninstall)
	}
	r.warnOfInstaller(of, by)
	r.release = running.Release()
	return nil
}

// warnOfInstaller says of what is removed that another tool makes it again, if one does.
func (r *removal) warnOfInstaller(of installation.Reference, by installation.Installer) {
	if by.Restores {
		r.Note("Warning: %s is kept by %s, which makes it again. To prevent that, %s.", of, by.Name, by.Uninstall)
	}
}

// noteRecord names the record that Helm still has of an operator that is removed.
func (r *removal) noteRecord(ctx context.Context) {
	if r.release.Name != "" {
		noteRecords(ctx, r.Global, r.in, r.release, "\"helm upgrade\" would install again what was removed", deletionOfRecord(r.release))
	}
}

// forced is what --force does while a custom resource goes.
type forced struct {
	// deleted, which may be nil, goes on when the custom resource is being deleted, so that the operator does not undo it.
	deleted func(context.Context) error
	// release does what the operator would have done, before the finalizers are taken off.
	release func(context.Context) error
}

// deleteCustom deletes a custom resource, and its operator what it has installed for it. With --force, where the operator does not run, or
// does not get there, its finalizers are taken off.
func (r *removal) deleteCustom(ctx context.Context, of installation.Reference, operator string, do forced) error {
	object, err := r.in.Get(ctx, of)
	if err != nil || object == nil {
		return err
	}
	if r.DryRun {
		r.Say("would delete %s", of)
		return nil
	}
	running, err := r.in.Deployed(ctx, fleet.NamespaceOperators, operator)
	if err != nil {
		return err
	}
	if _, err := r.in.Delete(ctx, of); err != nil {
		return err
	}
	r.deleted = append(r.deleted, object)
	if r.force {
		if do.deleted != nil {
			if err := do.deleted(ctx); err != nil {
				return err
			}
		}
		return r.forceDeleteCustom(ctx, of, object.GetUID(), running, do.release)
	}
	if err := r.awaitDeletion(ctx, of, object.GetUID()); err != nil {
		return fmt.Errorf("%w%s\n%s", err, deploymentReasons(ctx, r.in, []string{fleet.NamespaceOperators}), operatorHint(running, operator))
	}
	return nil
}

func operatorHint(running installation.Running, operator string) string {
	if running.Available {
		return fmt.Sprintf("Its operator runs; its log says more: kubectl --namespace %s logs deployment/%s", fleet.NamespaceOperators, operator)
	}
	return fmt.Sprintf("Its operator, Deployment %s/%s, does not run, and only that takes the finalizers off. --force does without it.",
		fleet.NamespaceOperators, operator)
}

// forceDeleteCustom gives an operator that runs a while, and takes the finalizers off then.
func (r *removal) forceDeleteCustom(ctx context.Context, of installation.Reference, uid types.UID, running installation.Running,
	release func(context.Context) error) error {
	if running.Available {
		limited, cancel := context.WithTimeout(ctx, forceAfter)
		err := r.awaitDeletion(limited, of, uid)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	if err := release(ctx); err != nil {
		return err
	}
	removed, err := r.in.RemoveFinalizers(ctx, of, func(finalizer string) bool {
		return strings.HasPrefix(finalizer, "operator.open-cluster-management.io/")
	})
	if err != nil {
		return err
	}
	if len(removed) > 0 {
		r.Note("Warning: took the finalizers %s off %s.", strings.Join(removed, ", "), of)
	}
	return r.awaitDeletion(ctx, of, uid)
}

// related are the objects that an operator has applied for a custom resource, as its status lists them.
func related(ctx context.Context, in *Cluster, custom *unstructured.Unstructured) ([]installation.Reference, error) {
	entries, _, _ := unstructured.NestedSlice(custom.Object, "status", "relatedResources")
	var refs []installation.Reference
	for _, entry := range entries {
		fields, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		text := func(key string) string {
			value, _ := fields[key].(string)
			return value
		}
		resource := schema.GroupVersionResource{Group: text("group"), Version: text("version"), Resource: text("resource")}
		of, err := in.ReferenceOf(ctx, resource, text("namespace"), text("name"))
		if err != nil {
			return nil, err
		}
		refs = append(refs, of)
	}
	return refs, nil
}

// chartReferences are the objects of a chart in the order to delete them in, and its namespace last, unless the other operator is in it.
func chartReferences(ctx context.Context, in *Cluster, chart string, values map[string]any,
	otherOperator string) ([]installation.Reference, error) {
	objects, err := installer.Objects(chart, values)
	if err != nil {
		return nil, err
	}
	other, err := in.Deployed(ctx, fleet.NamespaceOperators, otherOperator)
	if err != nil {
		return nil, err
	}
	var refs []installation.Reference
	for _, object := range slices.Backward(objects) {
		of := installation.ReferenceTo(object)
		shared := other.Exists && of.GroupVersionKind == installation.KindSecret // the password of the registry
		if of.GroupVersionKind != installation.KindNamespace && !shared {
			refs = append(refs, of)
		}
	}
	if other.Exists {
		return refs, nil
	}
	return append(refs, installation.Reference{GroupVersionKind: installation.KindNamespace, Name: fleet.NamespaceOperators}), nil
}

// forceAfter is how long the owner of a finalizer has with --force.
const forceAfter = 30 * time.Second
