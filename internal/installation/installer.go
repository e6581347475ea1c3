package installation

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What tools write on the objects that they keep, and find these by. The label app.kubernetes.io/instance, which Argo CD may be told to
// use, is no proof: charts have it, too.
const (
	labelOLMOwner      = "olm.owner"
	annotationArgoCD   = "argocd.argoproj.io/tracking-id"
	labelArgoCD        = "argocd.argoproj.io/instance"
	groupFluxHelm      = "helm.toolkit.fluxcd.io"
	groupFluxKustomize = "kustomize.toolkit.fluxcd.io"
)

// Installer is the tool that has installed an object. It would undo changes of others, or lose track of what others delete. One without a
// name is none.
type Installer struct {
	// Name names the tool, and what of it the object is a part of.
	Name string
	// Uninstall is what a user does to have the tool take the object away.
	Uninstall string
	// Restores reports whether the tool undoes on its own what others change and delete.
	Restores bool
}

// InstallerOf finds the installer of an object by its labels and annotations. Flux has Helm install, so what is of both is Flux's.
func InstallerOf(labels, annotations map[string]string) Installer {
	release := releaseOf(annotations)
	switch {
	case annotations[annotationArgoCD] != "":
		application, _, _ := strings.Cut(annotations[annotationArgoCD], ":") // before the kind and the name of the object
		return argoCD(application)
	case labels[labelArgoCD] != "":
		return argoCD(labels[labelArgoCD])
	case labels[groupFluxHelm+"/name"] != "":
		return flux("HelmRelease", groupFluxHelm, labels)
	case labels[groupFluxKustomize+"/name"] != "":
		return flux("Kustomization", groupFluxKustomize, labels)
	case release.Name != "":
		return Installer{
			Name:      fmt.Sprintf("Helm (release %s in namespace %s)", release.Name, release.Namespace),
			Uninstall: fmt.Sprintf("run \"helm uninstall %s --namespace %s\"", release.Name, release.Namespace),
		}
	case labels[labelOLMOwner] != "":
		return Installer{
			Name:      fmt.Sprintf("the Operator Lifecycle Manager (%s)", labels[labelOLMOwner]),
			Uninstall: fmt.Sprintf("delete its Subscription and ClusterServiceVersion %s", labels[labelOLMOwner]),
			Restores:  true,
		}
	}
	return Installer{}
}

func argoCD(application string) Installer {
	return Installer{
		Name:      fmt.Sprintf("Argo CD (Application %s)", application),
		Uninstall: fmt.Sprintf("take it out of what Application %s applies, or delete that", application),
		Restores:  true,
	}
}

func flux(kind, group string, labels map[string]string) Installer {
	of := fmt.Sprintf("%s %s/%s", kind, labels[group+"/namespace"], labels[group+"/name"])
	return Installer{
		Name:      fmt.Sprintf("Flux (%s)", of),
		Uninstall: fmt.Sprintf("take it out of what %s applies, or delete that", of),
		Restores:  true,
	}
}

// The labels and annotations of all tools but Helm.
var (
	labelsOfTools = []string{labelOLMOwner, labelArgoCD, groupFluxHelm + "/name", groupFluxHelm + "/namespace",
		groupFluxKustomize + "/name", groupFluxKustomize + "/namespace"}
	annotationsOfTools = []string{annotationArgoCD}
)

// TakeFromTools takes off those objects on the cluster what InstallerOf reads of other tools than Helm. A tool that still keeps an object
// puts it back. Namespaces stay theirs, which others use, too. The kinds that tell come last, as with TakeFromHelm.
func (c *Cluster) TakeFromTools(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range findersLast(objects) {
		of := ReferenceTo(object)
		if of.GroupVersionKind == KindNamespace {
			continue
		}
		live, err := c.Get(ctx, of)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		if patch := withoutTools(live); patch != nil {
			if err := c.Patch(ctx, of, patch); err != nil {
				return err
			}
		}
	}
	return nil
}

// withoutTools is the patch that takes the labels and annotations of tools off an object; nil if it has none of them.
func withoutTools(object *unstructured.Unstructured) []byte {
	metadata := map[string]any{}
	for field, of := range map[string]struct {
		names   []string
		present map[string]string
	}{"labels": {labelsOfTools, object.GetLabels()}, "annotations": {annotationsOfTools, object.GetAnnotations()}} {
		gone := map[string]any{}
		for _, name := range of.names {
			if _, has := of.present[name]; has {
				gone[name] = nil
			}
		}
		if len(gone) > 0 {
			metadata[field] = gone
		}
	}
	if len(metadata) == 0 {
		return nil
	}
	return marshal(map[string]any{"metadata": metadata})
}
