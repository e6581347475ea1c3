// Package fleet has the commands about the clusters of a hub: it accepts and denies them, shows them and the hub, puts them into
// cluster sets, and makes the tokens that they join with.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/joinrequests"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/cli/playground"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// acceptance is one run of "capstan accept".
type acceptance struct {
	*options.Global
	hub      *hubapi.Hub
	clusters options.ClusterFlags
	format   *output.Choice

	wait             bool
	skipApproveCheck bool
	requesters       []string
}

const acceptLong = `Let clusters work with the hub.

Of each cluster it approves the certificate requests that its agent made with a bootstrap credential, and sets
spec.hubAcceptsClient of its ManagedCluster. Requests that merely carry the label of the cluster are left alone. What is
accepted is shown before: who asked, the addresses, labels and annotations of the cluster, and the requests.

When several agents ask to be the same cluster, or one asks to be a cluster whose agent has a certificate already, none is
approved until you say which: --requesters names them, --skip-approve-check approves all of them. -o json shows them to a script.
Of requests in the name of one agent for different keys, and of a cluster that has joined, --requesters has to name the request itself.`

// NewAcceptCommand is "capstan accept".
func NewAcceptCommand(global *options.Global) *cobra.Command {
	run := &acceptance{Global: global}
	command := &cobra.Command{
		Use:               "accept --clusters CLUSTER,...",
		Short:             "Let clusters work with the hub",
		Long:              acceptLong,
		Example:           "  capstan accept --clusters cluster1\n  capstan accept --clusters cluster1,cluster2 --wait",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	run.clusters.Add(global, command)
	command.Flags().BoolVar(&run.wait, "wait", false, "wait for the clusters to ask, for --timeout seconds at most")
	command.Flags().BoolVar(&run.skipApproveCheck, "skip-approve-check", false,
		"approve requests of several agents for the same cluster, and for a cluster that has joined, too")
	command.Flags().StringSliceVar(&run.requesters, "requesters", nil,
		"common names of the agents to approve, or names of their requests, separated by commas; each has to match exactly")
	run.format = options.AddOutputFlag(command, output.Tree, output.YAML, output.JSON)
	options.Complete(command, "requesters", run.completeRequesters)
	command.RunE = func(command *cobra.Command, _ []string) error {
		names, err := run.clusters.Required()
		if err != nil {
			return err
		}
		return run.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			run.hub = hub
			return run.acceptAll(ctx, names)
		})
	}
	return command
}

// completeRequesters completes the names of requests to be one of the chosen clusters, and describes each by who makes it.
func (r *acceptance) completeRequesters(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return r.CompleteFromHub(command.Context(), func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
		chosen, err := r.clusters.Names()
		var names []string
		for _, cluster := range chosen {
			requests, _, err := joinrequests.List(ctx, hub, cluster, time.Time{})
			if err != nil {
				return nil, err
			}
			for _, request := range requests {
				if request.Pending {
					names = append(names, cobra.CompletionWithDesc(output.Printable(request.Name), output.Printable(request.CommonName)))
				}
			}
		}
		return names, err
	}), cobra.ShellCompDirectiveNoFileComp
}

// attempt is what has become of one cluster.
type attempt struct {
	result *output.Acceptance
	err    error
}

// acceptAll accepts all clusters that have requested to join, and then, with --wait, each of the others as soon as it does.
func (r *acceptance) acceptAll(ctx context.Context, clusters []string) error {
	attempts := make([]*attempt, len(clusters))
	for i, cluster := range clusters {
		attempts[i] = &attempt{result: &output.Acceptance{Cluster: cluster}}
		r.try(ctx, attempts[i])
	}
	if r.wait {
		r.acceptRequested(ctx, attempts)
	}
	errs := make([]error, 0, len(attempts))
	results := make([]*output.Acceptance, 0, len(attempts))
	for _, a := range attempts {
		if a.err != nil {
			a.result.Error = a.err.Error()
		}
		errs, results = append(errs, a.err), append(results, a.result)
	}
	if r.format.Format() != output.Tree {
		errs = append(errs, r.Print(r.format.Format(), output.View{Object: results}))
	}
	return errors.Join(errs...)
}

// try accepts a cluster if it has requested to join.
func (r *acceptance) try(ctx context.Context, a *attempt) {
	a.err = r.accept(ctx, a.result)
	if a.err != nil || r.DryRun {
		return
	}
	r.report("Your managed cluster %s has joined the Hub successfully.", a.result.Cluster) // as clusteradm says, for scripts
	r.report("cluster %s is accepted; \"capstan get clusters\" shows when it is available", a.result.Cluster)
	if !slices.ContainsFunc(a.result.Requests, func(request output.AgentRequest) bool {
		return request.Approved && r.isNamed(joinrequests.Request{Name: request.Name, CommonName: request.Agent})
	}) {
		r.report("no request was there to approve: its agent has a way in already")
	}
}

// notRequestedError is why a cluster that has not requested to join yet is not accepted.
type notRequestedError struct {
	error

	// what is waited for, and how.
	what  string
	await func(context.Context) error
}

func (e *notRequestedError) Unwrap() error { return e.error }

// acceptRequested waits for all clusters that have not requested to join at the same time, and accepts each when it does.
func (r *acceptance) acceptRequested(ctx context.Context, attempts []*attempt) {
	requested := make(chan *attempt)
	waiting := map[*attempt]*notRequestedError{}
	wait := func(a *attempt) {
		notRequested := &notRequestedError{}
		if !errors.As(a.err, &notRequested) {
			return
		}
		waiting[a] = notRequested
		go func() {
			a.err = notRequested.await(ctx)
			requested <- a
		}()
	}
	for _, a := range attempts {
		wait(a)
	}
	for len(waiting) > 0 {
		a := r.next(attempts, waiting, requested)
		delete(waiting, a)
		if a.err == nil {
			r.try(ctx, a)
			wait(a)
		} else if errors.Is(a.err, context.DeadlineExceeded) {
			a.err = fmt.Errorf("%w: see whether the agent of the cluster runs and can reach the hub", a.err)
		}
	}
}

// next returns the next cluster that has requested to join, or cannot be waited for any more. It shows meanwhile what is waited for.
func (r *acceptance) next(attempts []*attempt, waiting map[*attempt]*notRequestedError, requested <-chan *attempt) *attempt {
	progress := r.Global.Progress()
	defer progress.Close()
	for _, a := range attempts {
		if notRequested := waiting[a]; notRequested != nil {
			progress.Wait(a.result.Cluster, notRequested.what)
		}
	}
	return <-requested
}

// report prints what is done for a person; a program reads the result.
func (r *acceptance) report(format string, args ...any) {
	if r.format.Format() == output.Tree {
		r.Say(format, args...)
	}
}

func (r *acceptance) accept(ctx context.Context, result *output.Acceptance) error {
	cluster, err := r.cluster(ctx, result.Cluster)
	if err != nil {
		return err
	}
	if err := r.describe(ctx, cluster, result); err != nil {
		return err
	}
	chosen, err := r.requests(ctx, cluster, result)
	if err != nil {
		return err
	}
	if r.format.Format() == output.Tree {
		if err := output.StyleOf(r.Out).WriteTree(r.Out, output.AcceptanceTree(result, r.Clock.Now())); err != nil {
			return err
		}
	}
	if err := r.approve(ctx, chosen, result); err != nil {
		return err
	}
	if r.DryRun {
		r.report("would set hubAcceptsClient to true for managed cluster %s", cluster.Name)
		return nil
	}
	if err := managedclusters.Accept(ctx, r.hub, cluster.Name); err != nil {
		return err
	}
	result.Accepted = true
	r.report("set hubAcceptsClient to true for managed cluster %s", cluster.Name)
	return nil
}

// describe puts what the hub has about a cluster into the result.
func (r *acceptance) describe(ctx context.Context, cluster *clusterv1.ManagedCluster, result *output.Acceptance) error {
	result.Accepted = cluster.Spec.HubAcceptsClient
	result.Joined = meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionJoined)
	result.Labels, result.Taints = cluster.Labels, cluster.Spec.Taints
	result.RequestedBy = cluster.Annotations[fleet.AnnotationRequestedBy]
	result.Annotations = maps.Clone(cluster.Annotations)
	delete(result.Annotations, fleet.AnnotationRequestedBy)
	for _, config := range cluster.Spec.ManagedClusterClientConfigs {
		result.URLs = append(result.URLs, config.URL)
	}
	var err error
	result.ForeignNamespace, err = foreignNamespace(ctx, r.hub, cluster.Name)
	return err
}

// cluster reads the ManagedCluster, which its agent creates.
func (r *acceptance) cluster(ctx context.Context, name string) (*clusterv1.ManagedCluster, error) {
	cluster, err := managedclusters.Get(ctx, r.hub, name)
	if !apierrors.IsNotFound(err) || errors.Is(err, hubapi.ErrNotAHub) {
		return cluster, err
	}
	err = fmt.Errorf("cluster %s is not known to the hub: its agent creates it when it joins (\"capstan get token\" prints the command); "+
		"--wait waits for that: %w", name, err)
	return nil, &notRequestedError{err, "waiting for its agent", func(ctx context.Context) error {
		return managedclusters.Wait(ctx, r.hub, name, func(*clusterv1.ManagedCluster) bool { return true })
	}}
}

// requests returns the requests to approve. It fails when the agent of the cluster has no access and gets none.
func (r *acceptance) requests(ctx context.Context, cluster *clusterv1.ManagedCluster, result *output.Acceptance) ([]joinrequests.Request,
	error) {
	since := requestedSince(cluster)
	all, rejected, err := joinrequests.List(ctx, r.hub, cluster.Name, since)
	if err != nil {
		return nil, err
	}
	requests, earlier := r.splitEarlier(all, since)
	rejected = append(rejected, earlier...)
	setRequests(result, requests, rejected)
	if err := r.checkNamed(cluster.Name, requests); err != nil {
		return nil, err
	}
	chosen, err := r.choose(result, requests)
	if err != nil {
		return nil, err
	}
	approved := slices.ContainsFunc(requests, func(request joinrequests.Request) bool { return r.hasAccess(request, cluster) })
	if len(chosen) > 0 || approved || needsNoRequest(cluster) && !r.passesOver(requests) {
		return chosen, nil
	}
	return nil, &notRequestedError{noRequestError(cluster, r.notNamed(requests), rejected), "waiting for its certificate request",
		func(ctx context.Context) error { return r.awaitRequest(ctx, cluster, since) }}
}

// checkNamed fails for a request that --requesters has by its own name and that was denied, or failed: it cannot be approved any more.
func (r *acceptance) checkNamed(cluster string, requests []joinrequests.Request) error {
	for _, request := range requests {
		if request.Refused() && r.isNamedItself(request) {
			return fmt.Errorf("--requesters: CSR %s for cluster %s has been denied, or has failed, and cannot be approved any more. Once it is "+
				"deleted, its agent makes another one, which has another name", output.Printable(request.Name), cluster)
		}
	}
	return nil
}

// passesOver reports whether a request is pending that --requesters does not name: the one that is meant may be among those.
func (r *acceptance) passesOver(requests []joinrequests.Request) bool {
	return slices.ContainsFunc(requests, func(request joinrequests.Request) bool { return request.Pending && !r.isNamed(request) })
}

// creationSkew is how far apart an agent may create its ManagedCluster and its certificate request, and a hub approve that by itself. Of an
// agent that takes longer, a person decides who it is.
const creationSkew = 10 * time.Second

// requestedSince is from when on certificate requests, and decisions on them, are about this cluster: earlier ones are about a deleted
// cluster that had the same name.
func requestedSince(cluster *clusterv1.ManagedCluster) time.Time {
	return cluster.CreationTimestamp.Add(-creationSkew)
}

// splitEarlier takes out the requests that were made before the cluster was, by agents of a deleted cluster of the same name, unless
// --requesters names who made them.
func (r *acceptance) splitEarlier(requests []joinrequests.Request, since time.Time) (left []joinrequests.Request,
	earlier []joinrequests.Rejected) {
	for _, request := range requests {
		if !r.isEarlier(request, since) {
			left = append(left, request)
			continue
		}
		earlier = append(earlier, joinrequests.Rejected{Name: request.Name, Err: fmt.Errorf(
			"it is of %s, before the cluster was created, as by an "+
				"agent of a deleted cluster of this name; %s approves it all the same", request.Created.UTC().Format(time.RFC3339),
			output.ShellCommand("--requesters", output.Printable(request.Name)))})
	}
	return left, earlier
}

func (r *acceptance) isEarlier(request joinrequests.Request, since time.Time) bool {
	return request.EarlierThan(since) && (len(r.requesters) == 0 || !r.isNamed(request))
}

// setRequests puts the requests of a cluster into the result.
func setRequests(result *output.Acceptance, requests []joinrequests.Request, rejected []joinrequests.Rejected) {
	result.Requests, result.Rejected = nil, nil
	for _, request := range requests {
		if request.Pending || request.Approved {
			result.Requests = append(result.Requests, output.AgentRequest{
				Name: request.Name, Agent: request.CommonName, Requester: request.Requester, Created: request.Created, Approved: request.Approved,
			})
		}
	}
	for _, request := range rejected {
		result.Rejected = append(result.Rejected, output.RejectedRequest{Name: request.Name, Reason: request.Err.Error()})
	}
}

func (r *acceptance) approve(ctx context.Context, chosen []joinrequests.Request, result *output.Acceptance) error {
	for _, request := range chosen {
		if r.DryRun {
			r.report("would approve CSR %s of %s", output.Printable(request.Name), output.Printable(request.CommonName))
			continue
		}
		if err := joinrequests.Approve(ctx, r.hub, request.Name); err != nil {
			return err
		}
		for i := range result.Requests {
			result.Requests[i].Approved = result.Requests[i].Approved || result.Requests[i].Name == request.Name
		}
		r.report("CSR %s approved", output.Printable(request.Name))
	}
	return nil
}

// choose returns the requests to approve.
func (r *acceptance) choose(result *output.Acceptance, requests []joinrequests.Request) (chosen []joinrequests.Request, err error) {
	agents := map[string]bool{}
	for _, request := range requests {
		if request.Pending && r.isNamed(request) {
			chosen = append(chosen, request)
			agents[request.CommonName] = true
		}
	}
	if len(chosen) == 0 || r.skipApproveCheck {
		return chosen, nil
	}
	switch {
	case r.copied(chosen):
		return nil, fmt.Errorf("requests to be cluster %s are in the name of the same agent, but for different keys, so none is approved. "+
			"The agent may have lost its key and asked again, or an impostor asks in its name. %s", result.Cluster,
			adviceToName(result.Cluster, chosen))
	case len(r.requesters) == 0 && len(agents) > 1:
		return nil, fmt.Errorf("%d agents ask to be cluster %s, so none is approved. Choose the ones you know with --requesters, "+
			"or approve all with --skip-approve-check:%s%s", len(agents), result.Cluster, listRequests(chosen), identityHint(result.Cluster))
	case r.replaces(result.Joined, requests, chosen):
		return nil, fmt.Errorf("an agent of cluster %s has a certificate already, and one asks for another, so it is not approved. It may be the "+
			"same agent, which has lost its credential, or an impostor, who would get all that goes to the cluster. --skip-approve-check approves "+
			"every requester. %s%s", result.Cluster, adviceToName(result.Cluster, chosen), identityHint(result.Cluster))
	}
	return chosen, nil
}

// copied reports whether chosen requests are in the name of the same agent, and for different keys: at most one is the agent's own then.
// One whose own name --requesters has is known.
func (r *acceptance) copied(chosen []joinrequests.Request) bool {
	return slices.ContainsFunc(chosen, func(request joinrequests.Request) bool {
		return !r.isNamedItself(request) && slices.ContainsFunc(chosen, func(other joinrequests.Request) bool {
			return other.CommonName == request.CommonName && other.Key != request.Key
		})
	})
}

// replaces reports whether a chosen request is for another certificate than the one that an agent of the cluster has. Anyone can ask in the
// name of that agent: only the name of the request says which one is meant. The hub deletes requests that it has signed, so of a cluster
// that has joined, it is not known for whom it did.
func (r *acceptance) replaces(joined bool, requests, chosen []joinrequests.Request) bool {
	return slices.ContainsFunc(chosen, func(request joinrequests.Request) bool {
		return !r.isNamedItself(request) && (joined || slices.ContainsFunc(requests, func(other joinrequests.Request) bool {
			sameAgent := other.CommonName == request.CommonName
			return other.Approved && (sameAgent && other.Key != request.Key || !sameAgent && len(r.requesters) == 0)
		}))
	})
}

// adviceToName says how to have one of requests approved that the name of their agent does not tell apart.
func adviceToName(cluster string, requests []joinrequests.Request) string {
	return fmt.Sprintf("The owner of the cluster sees which request its agent made last: in its log, and in the event %s of its namespace. "+
		"Name that one:\n  capstan accept --clusters %s --requesters REQUEST\nand deny each other one:\n  kubectl certificate deny REQUEST\n"+
		"REQUEST is one of:%s", fleet.EventCSRCreated, cluster, listRequests(requests))
}

// identityHint says how the owner of a cluster sees who its agent is: its name ends with the UID of the Klusterlet, or with what an agent
// without one has chosen.
func identityHint(cluster string) string {
	local := playground.Home{Dir: "$" + playground.EnvHome}.Agent(playground.Member{Name: cluster})
	return fmt.Sprintf("\nThe owner of the cluster sees in it who its agent is, by the UID of the Klusterlet:\n"+
		"  kubectl get klusterlets --output custom-columns=CLUSTER:.spec.clusterName,UID:.metadata.uid\n"+
		"  %s is then its name.\n"+
		"For an agent that \"capstan join --local\" runs, this file of the owner has what is there in the place of UID (%s is ~/.capstan if it is "+
		"not set):\n  %s", fleet.ClusterUser(cluster, "UID"), playground.EnvHome, local.NameFile())
}

// listRequests lists the requests with their requesters, one a line.
func listRequests(requests []joinrequests.Request) string {
	var lines strings.Builder
	for _, request := range requests {
		fmt.Fprintf(&lines, "\n  %s (CSR %s of %s by %s)", output.Printable(request.CommonName), output.Printable(request.Name),
			request.Created.UTC().Format(time.RFC3339), output.Printable(request.Requester))
	}
	return lines.String()
}

// isNamed reports whether --requesters names a request or who made it, or is not set. It matches names whole.
func (r *acceptance) isNamed(request joinrequests.Request) bool {
	return len(r.requesters) == 0 || slices.Contains(r.requesters, request.CommonName) || r.isNamedItself(request)
}

// isNamedItself reports whether --requesters has the name of a request itself. Whoever makes a request chooses its name: what reads like an
// agent is none.
func (r *acceptance) isNamedItself(request joinrequests.Request) bool {
	return !fleet.IsAgentIdentity(request.Name) && slices.Contains(r.requesters, request.Name)
}

// notNamed are the requests that are pending or approved, and that --requesters does not name.
func (r *acceptance) notNamed(requests []joinrequests.Request) (others []joinrequests.Request) {
	for _, request := range requests {
		if !request.Refused() && !r.isNamed(request) {
			others = append(others, request)
		}
	}
	return others
}

func (r *acceptance) awaitRequest(ctx context.Context, cluster *clusterv1.ManagedCluster, since time.Time) error {
	return joinrequests.Watch(ctx, r.hub, cluster.Name, since, func(request joinrequests.Request) bool {
		decidable := request.Pending && r.isNamed(request) && !r.isEarlier(request, since)
		return r.hasAccess(request, cluster) || decidable || request.Refused() && r.isNamedItself(request)
	})
}

// hasAccess reports whether a request that is to be approved has been already. One that was approved before the hub lost sight of the
// cluster is about an agent that may be gone, unless --requesters names it.
func (r *acceptance) hasAccess(request joinrequests.Request, cluster *clusterv1.ManagedCluster) bool {
	available := meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionClusterAvailable)
	lost := hasJoined(cluster) && available != nil && available.Status != metav1.ConditionTrue &&
		request.Decided.Before(available.LastTransitionTime.Time)
	return request.Approved && r.isNamed(request) && (!lost || len(r.requesters) > 0)
}

// hasJoined reports whether an agent has joined as the cluster, now or once.
func hasJoined(cluster *clusterv1.ManagedCluster) bool {
	return cluster.Spec.HubAcceptsClient && meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionJoined)
}

// works reports whether the agent of a cluster has access, and uses it: the hub deletes the request that it has signed. That some agent
// joined once says nothing about the one that is to join now.
func works(cluster *clusterv1.ManagedCluster) bool {
	return hasJoined(cluster) && meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionClusterAvailable)
}

// needsNoRequest reports whether the agent of a cluster has access without a request: it works, or registers by its AWS role.
func needsNoRequest(cluster *clusterv1.ManagedCluster) bool {
	return works(cluster) || cluster.Annotations[fleet.AnnotationManagedClusterARN] != ""
}

func noRequestError(cluster *clusterv1.ManagedCluster, others []joinrequests.Request, rejected []joinrequests.Rejected) error {
	var details strings.Builder
	if hasJoined(cluster) && !works(cluster) {
		details.WriteString("\n  It was accepted before, for an agent that the hub does not hear of now: if that one is only away, " +
			"there is nothing to accept.")
	}
	if len(others) > 0 {
		details.WriteString("\n  --requesters names none of those who asked, whose names it has to match whole:" + listRequests(others))
	}
	for _, request := range rejected {
		fmt.Fprintf(&details, "\n  CSR %s is left alone: %s", output.Printable(request.Name), request.Err)
	}
	return fmt.Errorf("no csr is approved yet for cluster %s: see whether its agent runs and can reach the hub; --wait waits for its request%s",
		cluster.Name, details.String())
}

// foreignNamespace reports whether the hub has a namespace of a cluster's name that was not made for the cluster. Where namespaces may
// not be read, it is taken for none.
func foreignNamespace(ctx context.Context, hub *hubapi.Hub, cluster string) (bool, error) {
	namespace := &corev1.Namespace{}
	err := hub.Client(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, cluster, namespace)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	return err == nil && namespace.Labels[fleet.LabelClusterName] != cluster, hub.Explain("read namespace "+cluster, err)
}
