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
	"unicode"

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

// accessQuery is one run of "capstan access": whose access to which clusters is reviewed.
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
		reviewer, names, err := f.newReviewer(command, len(args) > 0)
		if err != nil {
			return err
		}
		if len(args) == 0 {
			return f.show(command.Context(), reviewer, names)
		}
		return f.canI(command.Context(), reviewer, names, f.accessRequest(args))
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
	request := f.accessRequest(args)
	if strings.ContainsAny(request.resource+request.name+f.subresource, "/%") || request.resource == "" {
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

// reviewer makes access reviews of a user on the hub and on clusters.
type reviewer struct {
	global *options.Global
	hub    *hubapi.Hub // as that user
	// own is the hub as whoever runs the program.
	own       *hubapi.Hub
	user      access.User
	namespace string
	limit     time.Duration
}

func (r *reviewer) subject() output.Subject {
	return output.Subject{User: r.user.Name, Groups: r.user.Groups, OnClusters: r.user.OnCluster().Name}
}

// newReviewer returns a reviewer, and the clusters to review.
func (f *accessQuery) newReviewer(command *cobra.Command, one bool) (*reviewer, []string, error) {
	r := &reviewer{global: f.Global, namespace: f.namespace, limit: clusterLimit(f.Global, command)}
	var err error
	if r.own, err = f.Hub(); err != nil {
		return nil, nil, err
	}
	target := f.Target()
	target.As = rest.ImpersonationConfig{UserName: f.user, Groups: f.groups}
	if r.hub, err = hubapi.Connect(target); err != nil {
		return nil, nil, err
	}
	ctx, cancel := f.Limited(command.Context())
	defer cancel()
	user, err := whoAmI(ctx, r.hub)
	if err != nil {
		return nil, nil, err
	}
	r.user = access.User{Name: user.Username, Groups: user.Groups}
	if !f.Chosen() && !one {
		f.All = true
	}
	names, err := f.Choose(ctx, r.own)
	return r, names, err
}

// forEachCluster reviews all clusters at once, each within the time limit.
func forEachCluster[T any](ctx context.Context, r *reviewer, names []string,
	review func(ctx context.Context, name string) (T, error)) ([]T, error) {
	results := make([]T, len(names))
	var group errgroup.Group
	group.SetLimit(parallelClusters)
	for i, name := range names {
		group.Go(func() (err error) {
			ctx, cancel := r.global.LimitedTo(ctx, r.limit)
			defer cancel()
			results[i], err = review(ctx, name)
			return err
		})
	}
	return results, group.Wait()
}

// proxyVerbs are those of the methods of HTTP, by which the hub authorizes requests to clusters.
var proxyVerbs = []string{verbGet, verbCreate, "update", "patch", verbDelete}

const (
	verbGet    = "get"
	verbCreate = "create"
	verbDelete = "delete"
)

// proxyVerbs returns the verbs that the hub allows the user on a cluster.
func (r *reviewer) proxyVerbs(ctx context.Context, cluster string) ([]string, error) {
	verbs := []string{}
	for _, verb := range proxyVerbs {
		allowed, err := reviewProxyAccess(ctx, r.hub, cluster, verb)
		if err != nil {
			return nil, err
		}
		if allowed {
			verbs = append(verbs, verb)
		}
	}
	return verbs, nil
}

// show lists what the user may do on each of the clusters.
func (f *accessQuery) show(ctx context.Context, r *reviewer, names []string) error {
	format := f.format.Format()
	clusters, err := forEachCluster(ctx, r, names, r.clusterAccess)
	if err != nil {
		return err
	}
	if err := f.Print(format, output.Accesses(&output.Access{Subject: r.subject(), Namespace: r.namespace, Clusters: clusters})); err != nil {
		return err
	}
	if format != output.Table {
		return nil
	}
	f.Note("The hub knows the user as %s, and clusters as %s. The rights are those outside of namespaces and in namespace %s.", r.user.Name,
		r.user.OnCluster().Name, r.namespace)
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

// clusterAccess is what the user may do on a cluster.
func (r *reviewer) clusterAccess(ctx context.Context, name string) (output.ClusterAccess, error) {
	found := output.ClusterAccess{Cluster: name, Permissions: r.permissions(ctx, name)}
	var err error
	if found.Enter, err = r.proxyVerbs(ctx, name); err != nil {
		return found, err
	}
	if len(found.Enter) == 0 {
		found.Reason, found.Next, err = r.explainHubRefusal(ctx, name, proxyVerbs)
		return found, err
	}
	cluster, err := clusterapi.Of(ctx, r.hub, name)
	if err != nil {
		return found, err
	}
	switch {
	case slices.Contains(found.Enter, verbCreate):
		rights, narrowed, err := reviewRules(ctx, cluster, r.namespace)
		found.Rights, found.Incomplete, found.Narrowed = rights.ResourceRules, rights.Incomplete, narrowed
		r.setConnected(&found, cluster, err)
	case slices.Contains(found.Enter, verbGet):
		r.setConnected(&found, cluster, cluster.Health(ctx))
		found.Reason = strings.TrimPrefix(found.Reason+"; "+noReview, "; ")
	}
	for _, permission := range found.Permissions {
		if !permission.Applied && found.Reason == "" {
			found.Reason = notApplied(permission)
		}
	}
	return found, nil
}

const noReview = "the rights on the cluster are not known: it is asked by a POST, for which the hub does not give the verb create"

// setConnected sets whether the cluster has answered.
func (r *reviewer) setConnected(found *output.ClusterAccess, cluster *clusterapi.Cluster, err error) {
	found.Connected = string(metav1.ConditionTrue)
	if err == nil {
		return
	}
	problem := cluster.Diagnose(err, r.limit)
	if !problem.Connected {
		found.Connected = string(metav1.ConditionFalse)
	}
	found.Reason, found.Next = problem.Message, problem.Next
}

// explainHubRefusal says that the hub refuses requests of the user to a cluster, and how it would allow them.
func (r *reviewer) explainHubRefusal(ctx context.Context, cluster string, verbs []string) (reason, next string, err error) {
	resource, err := proxyResource(ctx, r.hub)
	if err != nil {
		return "", "", err
	}
	role := roleToEnter(cluster, r.user.Name)
	name, subresource, _ := strings.Cut(resource.Resource, "/")
	return fmt.Sprintf("the hub does not let user %q %s %s of this cluster", r.user.Name, strings.Join(verbs, ", "), resource.Resource),
		fmt.Sprintf("An administrator of the hub lets the user in:\n"+
			"  kubectl create clusterrole %s --verb=%s --resource=%s.%s/%s --resource-name=%s\n"+
			"  kubectl create clusterrolebinding %s --clusterrole=%s --user=%s",
			role, strings.Join(verbs, ","), name, resource.Group, subresource, cluster, role, role, output.ShellCommand(r.user.Name)), nil
}

// roleToEnter is the name of a ClusterRole for one user of a cluster, without what a shell would interpret.
func roleToEnter(cluster, user string) string {
	return "enter-" + cluster + "-" + strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(".:@_-", r)) {
			return r
		}
		return '-'
	}, user)
}

// permissions are the ClusterPermissions that are about the user; none where they may not be read.
func (r *reviewer) permissions(ctx context.Context, cluster string) []output.Permission {
	items, err := clusterPermissions(ctx, r.own, cluster)
	if err != nil {
		return nil
	}
	var found []output.Permission
	for i := range items {
		if !isAbout(&items[i].Spec, r.user.OnCluster()) {
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
