package install

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// removeAgent deletes the Klusterlet, for which its operator deletes the agent, and what that leaves: the kinds on the managed cluster, for
// which the namespace of a hosted agent has the kubeconfig, and that namespace.
func (u *unjoining) removeAgent(ctx context.Context, removal *removal) error {
	if u.klusterlet != nil && !u.resumed {
		if err := u.removeKlusterlet(ctx, removal); err != nil {
			return err
		}
	}
	if err := u.removeKinds(ctx, removal); err != nil {
		return err
	}
	return u.removeNamespace(ctx, removal)
}

// removeNamespace deletes the namespace of the agent, unless it has another use, too. Where the operator has deleted it all the same,
// nothing is said of it.
func (u *unjoining) removeNamespace(ctx context.Context, removal *removal) error {
	name := u.agentNamespace()
	why, err := u.whyNamespaceStays(ctx)
	if err != nil {
		return err
	}
	if why == "" {
		return removal.deleteNamespace(ctx, name)
	}
	namespace, err := u.in.Get(ctx, installation.Reference{GroupVersionKind: installation.KindNamespace, Name: name})
	if err == nil && namespace != nil && namespace.GetDeletionTimestamp() == nil {
		u.Note(namespaceStays, name, u.in.Server(), why)
	}
	return err
}

const namespaceStays = "Namespace %s stays in %s: %s."

// whyNamespaceStays is why the namespace of the agent stays: the agent of another Klusterlet has it, too, or it is not for agents alone;
// empty if it goes.
func (u *unjoining) whyNamespaceStays(ctx context.Context) (string, error) {
	namespace := u.agentNamespace()
	why, err := u.whyStaysOn(ctx, u.in, namespace)
	if err != nil || why != "" {
		return why, err
	}
	if of, ok := u.elsewhere[namespace]; ok {
		return "it is that of Klusterlet " + of + ", whose agent runs in another cluster", nil
	}
	return "", nil
}

const alsoOf = "it is also that of the agent of Klusterlet "

// otherIn is another Klusterlet of a cluster whose agent has a namespace there, or is refused it for that; empty if there is none.
func (u *unjoining) otherIn(ctx context.Context, in *Cluster, namespace string) (klusterlet string, err error) {
	all, err := in.Klusterlets(ctx)
	if err != nil {
		return "", err
	}
	for i := range all {
		isOwn := u.klusterlet != nil && all[i].Name == u.klusterlet.Name && all[i].UID == u.klusterlet.UID
		if !isOwn && installation.NamespaceOfAgent(&all[i]) == namespace {
			return all[i].Name, nil
		}
	}
	return "", nil
}

// hostedElsewhere finds the Klusterlets whose agents are for this cluster and run in another one, by the namespaces that they have here:
// there is no Deployment in them.
func (u *unjoining) hostedElsewhere(ctx context.Context) (map[string]string, error) {
	namespaces, err := u.in.List(ctx, installation.KindNamespace, "", fleet.LabelKlusterlet)
	if err != nil {
		return nil, err
	}
	elsewhere := map[string]string{}
	for i := range namespaces {
		name, klusterlet := namespaces[i].GetName(), namespaces[i].GetLabels()[fleet.LabelKlusterlet]
		if u.klusterlet != nil && u.klusterlet.Name == klusterlet || namespaces[i].GetDeletionTimestamp() != nil {
			continue
		}
		agents, err := u.in.List(ctx, installation.KindDeployment, name, fleet.LabelCreatedByKlusterlet+"="+klusterlet)
		if err != nil {
			return nil, err
		}
		if len(agents) == 0 {
			elsewhere[name] = klusterlet
		}
	}
	return elsewhere, nil
}

func (u *unjoining) removeKlusterlet(ctx context.Context, removal *removal) error {
	of := installation.Reference{GroupVersionKind: installation.KindKlusterlet, Name: u.klusterlet.Name}
	klusterlet, err := u.in.Get(ctx, of)
	if err != nil || klusterlet == nil {
		return err
	}
	why, err := u.whyNamespaceStays(ctx)
	if err != nil {
		return err
	}
	if why == "" { // in a namespace that stays, there is nothing to go on with
		if err := u.annotateNamespace(ctx, u.agentNamespace()); err != nil {
			return err
		}
	}
	return removal.deleteCustom(ctx, of, klusterletOperator, forced{release: func(ctx context.Context) error {
		return u.deleteRelated(ctx, klusterlet, removal)
	}})
}

// deleteRelated does what the operator does not: it deletes what that has installed, as the status of the Klusterlet lists it, the agent
// first. The list does not say on which of the two clusters of a hosted agent an object is, and the other one may have one of that name.
func (u *unjoining) deleteRelated(ctx context.Context, klusterlet *unstructured.Unstructured, here *removal) error {
	if err := u.releaseWorks(ctx); err != nil {
		return err
	}
	refs, err := related(ctx, u.in, klusterlet)
	if err != nil {
		return err
	}
	others, err := u.in.Klusterlets(ctx)
	if err != nil {
		return err
	}
	var there *removal
	if installation.IsHosted(klusterlet) && u.managed != nil {
		there = &removal{Global: u.Global, in: clusterOf(u.managed), force: u.force}
	}
	shares := installation.IsHosted(klusterlet) || len(others) > 1
	for _, of := range slices.Backward(refs) {
		forAddOns := of.GroupVersionKind == installation.KindNamespace && of.Name == fleet.NamespaceAgentAddOn
		if of.GroupVersionKind == installation.KindCRD || forAddOns && shares {
			continue
		}
		owner := klusterlet.GetName()
		if forAddOns {
			owner = "" // of all Klusterlets
		}
		if err := u.deleteOwn(ctx, here, of, owner); err != nil {
			return err
		}
		if there == nil {
			continue
		}
		if err := u.deleteOwn(ctx, there, of, owner); err != nil {
			return err
		}
	}
	u.removeTokenAccounts(ctx)
	return nil
}

// removeTokenAccounts deletes the service accounts that the agent has kept for ManagedServiceAccounts, and says what stays.
func (u *unjoining) removeTokenAccounts(ctx context.Context) {
	if u.managed == nil {
		return
	}
	if err := removeTokenAccounts(ctx, u.managed, string(u.klusterlet.UID)); err != nil {
		u.Note("Warning: on cluster %s, %v", u.cluster, err)
	}
}

// deleteOwn deletes an object that has an owner by its label, unless it is a namespace that has another use, too.
func (u *unjoining) deleteOwn(ctx context.Context, on *removal, of installation.Reference, owner string) error {
	if of.GroupVersionKind != installation.KindNamespace {
		return on.deleteOf(ctx, of, fleet.LabelCreatedByKlusterlet, owner)
	}
	why, err := u.whyStaysOn(ctx, on.in, of.Name)
	if err != nil {
		return err
	}
	switch {
	case why == "":
		return on.deleteOf(ctx, of, fleet.LabelCreatedByKlusterlet, owner)
	case on.in != u.in: // where the agent runs, removeNamespace says so
		u.Note(namespaceStays, of.Name, on.in.Server(), why)
	}
	return nil
}

// whyStaysOn is why a namespace that the operator has made on a cluster stays; empty if it goes.
func (u *unjoining) whyStaysOn(ctx context.Context, in *Cluster, namespace string) (string, error) {
	other, err := u.otherIn(ctx, in, namespace)
	if err != nil {
		return "", err
	}
	if other != "" {
		return alsoOf + other, nil
	}
	use, err := otherUse(ctx, in, namespace)
	if err != nil || use == "" {
		return "", err
	}
	return "it " + use, nil
}

// releaseWorks takes the finalizers off what records what an agent has applied: that stays on the cluster.
func (u *unjoining) releaseWorks(ctx context.Context) error {
	if u.managed == nil {
		return nil
	}
	applied, err := appliedWorks(ctx, u.managed, string(u.klusterlet.UID))
	if err != nil {
		return err
	}
	managed := clusterOf(u.managed)
	for i := range applied {
		of := installation.Reference{GroupVersionKind: installation.KindAppliedManifestWork, Name: applied[i].Name}
		_, err := managed.RemoveFinalizers(ctx, of, func(string) bool { return true })
		if err != nil {
			return err
		}
	}
	return nil
}

// operatorObjects are the operator and what it has installed for agents, as far as they may be removed.
func (u *unjoining) operatorObjects(ctx context.Context) ([]installation.Reference, error) {
	why, err := u.whyOperatorStays(ctx)
	if err != nil {
		return nil, err
	}
	if why != "" {
		u.Note("The operator stays in %s, with its kinds and those of agents: %s.", u.in.Server(), why)
		return nil, nil
	}
	refs, err := chartReferences(ctx, u.in, "klusterlet", map[string]any{
		"klusterlet": map[string]any{"create": false, "mode": string(operatorv1.InstallModeDefault)},
		"images":     map[string]any{"imageCredentials": map[string]any{"createImageCredentials": true, "dockerConfigJson": "{}"}},
	}, clusterManagerOperator)
	if err != nil {
		return nil, err
	}
	if hosted := slices.Sorted(maps.Values(u.elsewhere)); len(hosted) > 0 {
		u.Note(kindsStay, u.in.Server(), hosted[0])
		return refs, nil
	}
	return slices.Concat(agentKinds, refs), nil // the namespace, which has the annotation, last
}

// whyOperatorStays is why the operator does not go with the Klusterlet; empty if it does.
func (u *unjoining) whyOperatorStays(ctx context.Context) (string, error) {
	if !u.purgeOperator {
		return "--purge-operator is false", nil
	}
	all, err := u.in.Klusterlets(ctx)
	if err != nil {
		return "", err
	}
	isOther := func(k operatorv1.Klusterlet) bool { return u.klusterlet == nil || k.Name != u.klusterlet.Name }
	if i := slices.IndexFunc(all, isOther); i >= 0 {
		return "there is Klusterlet " + all[i].Name, nil
	}
	return "", nil
}

// checkInstallers finds out, before anything is changed, who keeps what is to be removed.
func (u *unjoining) checkInstallers(ctx context.Context, removal *removal) error {
	if u.klusterlet != nil && !u.resumed {
		of := installation.Reference{GroupVersionKind: installation.KindKlusterlet, Name: u.klusterlet.Name}
		removal.warnOfInstaller(of, installation.InstallerOf(u.klusterlet.Labels, u.klusterlet.Annotations))
	}
	why, err := u.whyOperatorStays(ctx)
	if err != nil || why != "" {
		return err
	}
	return removal.checkOperator(ctx, klusterletOperator, "the agent")
}

const kindsStay = "The kinds of agents stay on cluster %s: the agent of Klusterlet %s is there, too."

// agentKinds are the kinds that the operator has installed on the managed cluster, which it leaves there for what users have stored.
var agentKinds = []installation.Reference{
	{GroupVersionKind: installation.KindCRD, Name: installation.CRDAppliedManifestWorks},
	{GroupVersionKind: installation.KindCRD, Name: installation.CRDClusterClaims},
	{GroupVersionKind: installation.KindCRD, Name: installation.CRDClusterProperties},
}

// removeKinds removes them from the managed cluster of a hosted agent, unless another agent needs them, or the operator is there, too, with
// which they go.
func (u *unjoining) removeKinds(ctx context.Context, here *removal) error {
	if u.klusterlet == nil || !installation.HasHostedAgent(u.klusterlet) || u.managed == nil {
		return nil
	}
	managed := clusterOf(u.managed)
	if same, err := isSame(ctx, u.in, managed); same || err != nil {
		return err
	}
	agents, err := managed.List(ctx, installation.KindNamespace, "", fleet.LabelKlusterlet)
	if err != nil {
		return err
	}
	if len(agents) > 0 && !u.DryRun {
		u.Note(kindsStay, u.cluster, agents[0].GetLabels()[fleet.LabelKlusterlet])
		return nil
	}
	there := &removal{Global: u.Global, in: managed, force: u.force}
	err = there.deleteAll(ctx, agentKinds)
	here.deleted = append(here.deleted, there.deleted...)
	return err
}

// isSame reports whether two kubeconfigs lead to one cluster: the UID of the namespace that every cluster has is its own.
func isSame(ctx context.Context, one, other *Cluster) (bool, error) {
	var uids [2]types.UID
	for i, cluster := range []*Cluster{one, other} {
		system, err := cluster.Get(ctx, installation.Reference{GroupVersionKind: installation.KindNamespace, Name: metav1.NamespaceSystem})
		if err != nil {
			return false, err
		}
		if system != nil {
			uids[i] = system.GetUID()
		}
	}
	return uids[0] != "" && uids[0] == uids[1], nil
}
