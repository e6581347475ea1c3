package install

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// annotationUnjoining on the namespace of an agent is its Klusterlet, as far as unjoin needs it: an interrupted run has removed that. On
// the namespace of the operator it says that this goes with the Klusterlet.
const annotationUnjoining = "capstan.io/unjoining"

// resume finds what an interrupted run has left, and what it was of. An annotation counts only for its own namespace, and not if the agent
// of a Klusterlet that exists runs in it.
func (u *unjoining) resume(ctx context.Context, others []operatorv1.Klusterlet) (left bool, err error) {
	namespaces, err := u.in.List(ctx, installation.KindNamespace, "", "")
	if err != nil {
		return false, err
	}
	removing := false // the operator, too
	for i := range namespaces {
		klusterlet := &operatorv1.Klusterlet{}
		marked := json.Unmarshal([]byte(namespaces[i].GetAnnotations()[annotationUnjoining]), klusterlet) == nil
		runsHere := func(agent operatorv1.Klusterlet) bool {
			return installation.NamespaceOfAgent(&agent) == namespaces[i].GetName()
		}
		isChosen := klusterlet.Spec.ClusterName == u.cluster && (u.name == "" || klusterlet.Name == u.name)
		removing = removing || marked && isChosen && namespaces[i].GetName() == fleet.NamespaceOperators
		if marked && runsHere(*klusterlet) && !slices.ContainsFunc(others, runsHere) && isChosen {
			u.klusterlet, u.resumed = klusterlet, true
			return true, u.findManaged(ctx)
		}
	}
	if len(others) > 0 || removing {
		return len(others) == 0, nil
	}
	u.idle, err = u.hasOperatorObjects(ctx)
	return u.idle && u.force, err // without --force, the name of the cluster may be a wrong one
}

// howIdleGoes says how an operator goes that is there without any Klusterlet.
func (u *unjoining) howIdleGoes(ctx context.Context) (string, error) {
	running, err := u.in.Deployed(ctx, fleet.NamespaceOperators, klusterletOperator)
	if err != nil {
		return "", err
	}
	if by := running.Installer(); by.Name != "" {
		return fmt.Sprintf("it is kept by %s: %s, or insist with --force", by.Name, by.Uninstall), nil
	}
	return "--force removes that", nil
}

// hasOperatorObjects reports whether there is anything of the operator but what may stay: its namespace and the kinds of agents.
func (u *unjoining) hasOperatorObjects(ctx context.Context) (bool, error) {
	refs, err := u.operatorObjects(ctx)
	if err != nil {
		return false, err
	}
	for _, of := range refs {
		if of.GroupVersionKind == installation.KindNamespace || slices.Contains(agentKinds, of) {
			continue
		}
		if object, err := u.in.Get(ctx, of); err != nil || object != nil {
			return object != nil, err
		}
	}
	return false, nil
}

// annotateNamespace puts what a later run needs of the Klusterlet on a namespace.
func (u *unjoining) annotateNamespace(ctx context.Context, name string) error {
	namespace := installation.Reference{GroupVersionKind: installation.KindNamespace, Name: name}
	object, err := u.in.Get(ctx, namespace)
	if err != nil || object == nil || u.DryRun {
		return err
	}
	minimal := operatorv1.Klusterlet{}
	minimal.Name, minimal.UID = u.klusterlet.Name, u.klusterlet.UID
	minimal.Spec.ClusterName, minimal.Spec.Namespace = u.klusterlet.Spec.ClusterName, u.klusterlet.Spec.Namespace
	minimal.Spec.DeployOption = u.klusterlet.Spec.DeployOption
	content, err := json.Marshal(minimal)
	if err != nil {
		return err
	}
	return u.patchAnnotation(ctx, namespace, string(content))
}

// clearAnnotation takes that off a namespace, if it is there.
func (u *unjoining) clearAnnotation(ctx context.Context, name string) error {
	namespace := installation.Reference{GroupVersionKind: installation.KindNamespace, Name: name}
	object, err := u.in.Get(ctx, namespace)
	if err != nil || object == nil || object.GetAnnotations()[annotationUnjoining] == "" {
		return err
	}
	return u.patchAnnotation(ctx, namespace, nil)
}

func (u *unjoining) patchAnnotation(ctx context.Context, namespace installation.Reference, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotationUnjoining: value}}})
	if err != nil {
		return err
	}
	return u.in.Patch(ctx, namespace, patch)
}
