// Package reach has the commands that reach into clusters through the hub: "capstan access", "kubeconfig", "kubectl", "proxy",
// "credentials", those for pods, and "capstan get" for resources of many clusters.
package reach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	permissionv1alpha1 "github.com/capstan-io/capstan/api/rbac/v1alpha1"
	"github.com/capstan-io/capstan/internal/cli/clusterapi"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/reach/access"
)

const accessLong = `Show what you may do on clusters through the hub, and why not.

Without VERB, there is a row for each cluster: with which verbs the hub lets you ENTER it, whether it is CONNECTED, which RIGHTS it gives
you outside of namespaces and in that of --namespace, whether its owner has NARROWED them by the ConfigMap hub-access, and which
ClusterPermissions of the hub are about you. -o yaml has all of it. Without flags, it is about all clusters that the hub has accepted.

With VERB and RESOURCE, as "kubectl auth can-i" takes them, it says yes or no for each of the clusters, and what stands in the way first:
the hub, the connection, the owner of the cluster, or the rights on the cluster. The exit code is 1 unless the answer is yes for all.

--as asks for somebody else, if the hub lets you impersonate. A cluster has 10 seconds to answer, or those of --timeout.`

// accessQuery is one run of "capstan access": whose access to which clusters is asked for.
type accessQuery struct {
	*options.Global
	options.ClusterChoice

	namespace   string
	subresource string
	user        string
	groups      []string
	format      *output.Choice
}

// NewAccessCommand is "capstan access".
func NewAccessCommand(global *options.Global) *cobra.Command {
	f := &accessQuery{Global: global}
	command := &cobra.Command{
		Use:   "access [VERB RESOURCE[/NAME]]",
		Short: "Show what you may do on clusters through the hub, and why not",
		Long:  accessLong,
		Example: "  capstan access\n" +
			"  capstan access --clusters cluster1,cluster2 -n web --as alice --as-group ops -o yaml\n" +
			"  capstan access list pods -n web --cluster cluster1\n" +
			"  capstan access create pods --subresource exec -n web --clusterset prod",
		Args:              f.checkArgs,
		ValidArgsFunction: completeAccess,
	}
	f.ClusterChoice.Add(global, command)
	flags := command.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the clusters")
	flags.StringVar(&f.subresource, "subresource", "", "subresource that VERB is about, such as exec or log")
	flags.StringVar(&f.user, "as", "", "user of the hub to ask for (default: you)")
	flags.StringArrayVar(&f.groups, "as-group", nil, "group of that user; can be repeated")
	f.format = options.AddOutputFlag(command, output.Table, output.JSON, output.YAML)
	for _, flag := range []string{"namespace", "subresource", "as", "as-group"} {
		options.Complete(command, flag, cobra.NoFileCompletions)
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		asker, names, err := f.asker(command, len(args) > 0)
		if err != nil {
			return err
		}
		if len(args) == 0 {
			return f.show(command.Context(), asker, names)
		}
		return f.answer(command.Context(), asker, names, f.question(args))
	}
	return command
}

func (f *accessQuery) checkArgs(command *cobra.Command, args []string) error {
	if err := options.CheckNamespaceName("--namespace", f.namespace); err != nil {
		return err
	}
	switch {
	case len(f.groups) > 0 && f.user == "":
		return errors.New("--as-group: needs --as, the user who is in the group")
	case len(args) == 0 && f.subresource != "":
		return errors.New("--subresource: is for VERB and RESOURCE, which are missing")
	case len(args) == 0:
		return nil
	case len(args) != 2: //nolint:mnd // a verb and a resource
		return fmt.Errorf("%d arguments given, want a verb and a resource, or none: %s", len(args), command.UseLine())
	case !f.Chosen():
		return fmt.Errorf("say on which clusters, with --cluster, --clusters, --placement, --clusterset or --all-clusters: capstan access %s --cluster CLUSTER",
			strings.Join(args, " "))
	}
	q := f.question(args)
	if strings.ContainsAny(q.resource+q.name+f.subresource, "/%") || q.resource == "" {
		return fmt.Errorf("RESOURCE: %q: write it as RESOURCE or RESOURCE/NAME, such as pods or pods/web-0; --subresource is for exec, log and others", args[1])
	}
	return nil
}

func completeAccess(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// asker asks the hub and clusters about the rights of a user.
type asker struct {
	global *options.Global
	hub    *hubapi.Hub // as that user
	// own is the hub as whoever runs the program.
	own       *hubapi.Hub
	user      access.User
	namespace string
	limit     time.Duration
}

func (q *asker) person() output.Subject {
	return output.Subject{User: q.user.Name, Groups: q.user.Groups, OnClusters: q.user.OnCluster().Name}
}

// asker prepares to ask, and returns the clusters to ask about.
func (f *accessQuery) asker(command *cobra.Command, one bool) (*asker, []string, error) {
	q := &asker{global: f.Global, namespace: f.namespace, limit: clusterLimit(f.Global, command)}
	var err error
	if q.own, err = f.Hub(); err != nil {
		return nil, nil, err
	}
	target := f.Target()
	target.As = rest.ImpersonationConfig{UserName: f.user, Groups: f.groups}
	if q.hub, err = hubapi.Connect(target); err != nil {
		return nil, nil, err
	}
	ctx, cancel := f.Limited(command.Context())
	defer cancel()
	who, err := who(ctx, q.hub)
	if err != nil {
		return nil, nil, err
	}
	q.user = access.User{Name: who.Username, Groups: who.Groups}
	if !f.Chosen() && !one {
		f.All = true
	}
	names, err := f.Choose(ctx, q.own)
	return q, names, err
}

// ofAll asks about all clusters at once, each of which has the time to answer.
func ofAll[T any](ctx context.Context, q *asker, names []string, ask func(ctx context.Context, name string) (T, error)) ([]T, error) {
	answers := make([]T, len(names))
	var asking errgroup.Group
	asking.SetLimit(parallelClusters)
	for i, name := range names {
		asking.Go(func() (err error) {
			ctx, cancel := q.global.LimitedTo(ctx, q.limit)
			defer cancel()
			answers[i], err = ask(ctx, name)
			return err
		})
	}
	return answers, asking.Wait()
}

// enterVerbs are those of the methods of HTTP, for which the hub asks.
var enterVerbs = []string{verbGet, verbCreate, "update", "patch", verbDelete}

const (
	verbGet    = "get"
	verbCreate = "create"
	verbDelete = "delete"
)

// enter returns the verbs with which the hub lets the user into a cluster.
func (q *asker) enter(ctx context.Context, cluster string) ([]string, error) {
	verbs := []string{}
	for _, verb := range enterVerbs {
		may, err := mayEnter(ctx, q.hub, cluster, verb)
		if err != nil {
			return nil, err
		}
		if may {
			verbs = append(verbs, verb)
		}
	}
	return verbs, nil
}

// show lists what the user may do on each of the clusters.
func (f *accessQuery) show(ctx context.Context, q *asker, names []string) error {
	format := f.format.Format()
	clusters, err := ofAll(ctx, q, names, q.accessTo)
	if err != nil {
		return err
	}
	if err := f.Print(format, output.Accesses(&output.Access{Subject: q.person(), Namespace: q.namespace, Clusters: clusters})); err != nil {
		return err
	}
	if format != output.Table {
		return nil
	}
	f.Note("The hub knows the user as %s, and clusters as %s. The rights are those outside of namespaces and in namespace %s.", q.user.Name,
		q.user.OnCluster().Name, q.namespace)
	for i := range clusters {
		for _, narrowed := range clusters[i].Narrowed {
			f.Note("%s: %s", clusters[i].Cluster, narrowed)
		}
		f.noteReason(clusters[i].Cluster, clusters[i].Reason)
	}
	for i := range clusters {
		f.noteNext(clusters[i].Next)
	}
	return nil
}

func (f *accessQuery) noteReason(cluster, reason string) {
	if reason != "" {
		f.Note("%s: %s", cluster, reason)
	}
}

func (f *accessQuery) noteNext(next string) {
	if next != "" {
		f.Note("%s", next)
	}
}

// accessTo says what the user may do on a cluster.
func (q *asker) accessTo(ctx context.Context, name string) (output.ClusterAccess, error) {
	found := output.ClusterAccess{Cluster: name, Permissions: q.permissions(ctx, name)}
	var err error
	if found.Enter, err = q.enter(ctx, name); err != nil {
		return found, err
	}
	if len(found.Enter) == 0 {
		found.Reason, found.Next, err = q.notLetIn(ctx, name, enterVerbs)
		return found, err
	}
	cluster, err := clusterapi.Of(ctx, q.hub, name)
	if err != nil {
		return found, err
	}
	switch {
	case slices.Contains(found.Enter, verbCreate):
		rights, narrowed, err := rightsOn(ctx, cluster, q.namespace)
		found.Rights, found.Incomplete, found.Narrowed = rights.ResourceRules, rights.Incomplete, narrowed
		q.connected(&found, cluster, err)
	case slices.Contains(found.Enter, verbGet):
		q.connected(&found, cluster, cluster.Health(ctx))
		found.Reason = strings.TrimPrefix(found.Reason+"; "+cannotAsk, "; ")
	}
	for _, permission := range found.Permissions {
		if !permission.Applied && found.Reason == "" {
			found.Reason = notApplied(permission)
		}
	}
	return found, nil
}

const cannotAsk = "the rights on the cluster are not known: it is asked by a POST, for which the hub does not give the verb create"

// connected says whether the cluster has answered.
func (q *asker) connected(found *output.ClusterAccess, cluster *clusterapi.Cluster, err error) {
	found.Connected = string(metav1.ConditionTrue)
	if err == nil {
		return
	}
	trouble := cluster.Diagnose(err, q.limit)
	if !trouble.Connected {
		found.Connected = string(metav1.ConditionFalse)
	}
	found.Reason, found.Next = trouble.Message, trouble.Next
}

// notLetIn says that the hub does not let the user into a cluster, and how it would.
func (q *asker) notLetIn(ctx context.Context, cluster string, verbs []string) (reason, next string, err error) {
	resource, err := proxyResource(ctx, q.hub)
	if err != nil {
		return "", "", err
	}
	role := "enter-" + cluster
	name, subresource, _ := strings.Cut(resource.Resource, "/")
	return fmt.Sprintf("the hub does not let user %q %s %s of this cluster", q.user.Name, strings.Join(verbs, ", "), resource.Resource),
		fmt.Sprintf("An administrator of the hub lets the user in:\n"+
			"  kubectl create clusterrole %s --verb=%s --resource=%s.%s/%s --resource-name=%s\n"+
			"  kubectl create clusterrolebinding %s --clusterrole=%s --user='%s'",
			role, strings.Join(verbs, ","), name, resource.Group, subresource, cluster, role, role, q.user.Name), nil
}

// permissions are the ClusterPermissions that are about the user. Who may not read them is told of none.
func (q *asker) permissions(ctx context.Context, cluster string) []output.Permission {
	items, err := clusterPermissions(ctx, q.own, cluster)
	if err != nil {
		return nil
	}
	var found []output.Permission
	for i := range items {
		if !isAbout(&items[i].Spec, q.user.OnCluster()) {
			continue
		}
		permission := output.Permission{Name: items[i].Name}
		if condition := meta.FindStatusCondition(items[i].Status.Conditions, fleet.ConditionAppliedRBACManifestWork); condition != nil {
			permission.Applied, permission.Message = condition.Status == metav1.ConditionTrue, text.OneLine(condition.Message)
		}
		found = append(found, permission)
	}
	return found
}

func notApplied(p output.Permission) string {
	return strings.TrimSuffix(fmt.Sprintf("ClusterPermission %s of the hub, which is about the user, is not on the cluster: %s", p.Name, p.Message), ": ")
}

// isAbout tells whether a permission has the user of a cluster among its subjects, or a group of it.
func isAbout(spec *permissionv1alpha1.ClusterPermissionSpec, user access.User) bool {
	var subjects []rbacv1.Subject
	add := func(one *rbacv1.Subject, several []rbacv1.Subject) {
		if subjects = append(subjects, several...); one != nil {
			subjects = append(subjects, *one)
		}
	}
	if binding := spec.ClusterRoleBinding; binding != nil {
		add(binding.Subject, binding.Subjects)
	}
	for i := range spec.RoleBindings {
		add(spec.RoleBindings[i].Subject, spec.RoleBindings[i].Subjects)
	}
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.UserKind && s.Name == user.Name || s.Kind == rbacv1.GroupKind && slices.Contains(user.Groups, s.Name)
	})
}
