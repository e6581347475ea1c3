// Package executor checks whether the service account that a ManifestWork names has itself the rights to do what the work has the agent
// do.
//
// The agent has the managed cluster's authorizer review it, and caches for a minute what is allowed. It reviews all names of a
// resource in a namespace first: one answer then serves all manifests of the kind.
//
// Of some kinds, the API server checks more than the verb: what the requester may have them say. These it is asked to try as the account
// first: roles and bindings at each check, and others, of which it is known by their group, when they are written.
package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/managedfields"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// remembered is how long an answer of the authorizer counts, and so how long a right still counts that was revoked. Nothing is
// remembered of single names that are refused, so rights that are granted count at once.
const remembered = time.Minute

// unanswered is the delay before another review by an authorizer that has not answered.
const unanswered = 10 * time.Second

// verbs are what applying takes; deleting is reviewed where the object goes with the work.
var verbs = []string{"get", "create", "update", "patch"}

const rbacGroup = "rbac.authorization.k8s.io"

// ocmDomain is that of the groups of Open Cluster Management, whose admission asks what the requester may do: to use executors, to bind
// sets, to accept clusters.
const ocmDomain = ".open-cluster-management.io"

// requesterGroups are other groups with kinds of which API servers and admission check what the requester may have them say.
var requesterGroups = sets.New(
	"admissionregistration.k8s.io", // parameters of policies
	"certificates.k8s.io",          // bundles of signers, and who requests certificates
	"authorization.openshift.io",   // roles and bindings
	"about.k8s.io", "multicluster.x-k8s.io", "cluster.core.oam.dev",
)

// checksRequesters reports whether admission checks of kinds of the group what the requester may have them say.
func checksRequesters(group string) bool {
	return strings.HasSuffix(group, ocmDomain) || requesterGroups.Has(group)
}

// Object is what an executor must be allowed to apply.
type Object struct {
	schema.GroupVersionResource
	types.NamespacedName
	// Owned reports whether the object goes with the work.
	Owned bool
	// ReadOnly is set if the object is reported on and not applied.
	ReadOnly bool
	// Content is the manifest of the object, or what a write makes of the object.
	Content *unstructured.Unstructured
}

// Decision is what is known of an executor and an object.
type Decision struct {
	// MayGet reports whether it may read the object, whatever else it may not.
	MayGet bool
	// Until is when to check again; zero is never.
	Until time.Time
}

// refusedError is that an executor may not do what its work requires.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

// IsRefusal reports whether an error of Check says that the executor lacks a right, rather than that this could not be found out.
func IsRefusal(err error) bool {
	var refused *refusedError
	return errors.As(err, &refused)
}

// Checker checks executors.
type Checker struct {
	config  *rest.Config
	reviews authorizationclient.SubjectAccessReviewInterface
	clock   clock.Clock

	inFlight singleflight.Group
	mu       sync.Mutex
	answers  map[reviewKey]answer
	swept    time.Time
}

type reviewKey struct {
	account string
	verb    string
	schema.GroupResource
	types.NamespacedName
	// content is the hash of the object where the answer depends on what is in it.
	content string
}

type answer struct {
	allowed bool
	until   time.Time
}

// New returns a Checker with the authorizer of the cluster of the config.
func New(config *rest.Config, clk clock.Clock) (*Checker, error) {
	client, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for access reviews: %w", err)
	}
	return &Checker{config: config, reviews: client.SubjectAccessReviews(), clock: clk, answers: map[reviewKey]answer{}}, nil
}

// Check fails if the executor may not apply the object, with a message that says which rights it lacks. No executor means the
// agent itself, whose rights the API server checks.
func (c *Checker) Check(ctx context.Context, executor *workv1.ManifestWorkExecutor, o Object) (Decision, error) {
	if executor == nil {
		return Decision{MayGet: true}, nil
	}
	account := executor.Subject.ServiceAccount
	if executor.Subject.Type != workv1.ExecutorSubjectTypeServiceAccount || account == nil {
		return Decision{}, &refusedError{fmt.Errorf("spec.executor.subject: type %q without a serviceAccount cannot be used: "+
			"set type ServiceAccount, and namespace and name of one", executor.Subject.Type)}
	}
	v := Decision{Until: c.clock.Now().Add(remembered)}
	var missing []string
	for _, verb := range needed(o) {
		a, err := c.allowed(ctx, *account, verb, o)
		if err != nil {
			v.Until = c.clock.Now().Add(unanswered)
			return v, fmt.Errorf("find out what ServiceAccount %s/%s may do: %w", account.Namespace, account.Name, err)
		}
		switch {
		case !a.allowed:
			missing = append(missing, verb)
		case verb == "get":
			v.MayGet = true
		}
		v.sooner(a.until)
	}
	if len(missing) > 0 {
		return v, &refusedError{refusal(*account, missing, o)}
	}
	if o.Group != rbacGroup || o.ReadOnly {
		return v, nil
	}
	until, err := c.checkEscalation(ctx, *account, o)
	if err != nil {
		until = c.clock.Now().Add(unanswered)
	}
	v.sooner(until)
	return v, err
}

// ResultCheck returns what fails if the executor may not have the object be what a write makes of it: a new one, or one that exists, with
// its resource version. It returns nil if there is nothing to check. The executor is one that Check takes.
func (c *Checker) ResultCheck(executor *workv1.ManifestWorkExecutor, o Object) func(context.Context, *unstructured.Unstructured) error {
	if executor == nil || executor.Subject.ServiceAccount == nil {
		return nil
	}
	account := *executor.Subject.ServiceAccount
	switch {
	case o.Group == rbacGroup:
		return func(ctx context.Context, result *unstructured.Unstructured) error {
			return c.checkGrants(ctx, account, o, result)
		}
	case checksRequesters(o.Group):
		return func(ctx context.Context, result *unstructured.Unstructured) error {
			return c.checkAdmission(ctx, account, o, result)
		}
	default:
		return nil
	}
}

// checkGrants fails if the executor gives away rights that it does not have. An object that exists is more than the manifest: the fields
// that this does not name stay, and grant as well. Of a new one, Check has tried all.
func (c *Checker) checkGrants(ctx context.Context, account workv1.ManifestWorkSubjectServiceAccount, o Object,
	result *unstructured.Unstructured) error {
	if result.GetResourceVersion() == "" {
		return nil
	}
	o.Content = withoutServerMetadata(result)
	_, err := c.checkEscalation(ctx, account, o)
	return err
}

// checkAdmission fails if the executor could not make the write itself. The write follows at once, so nothing is remembered.
func (c *Checker) checkAdmission(ctx context.Context, account workv1.ManifestWorkSubjectServiceAccount, o Object,
	result *unstructured.Unstructured) error {
	o.Content = result
	if result.GetResourceVersion() == "" {
		o.Content = withoutServerMetadata(result)
	}
	return c.tryAs(ctx, account, o)
}

// withoutServerMetadata is an object as it can be created: without the metadata that the API server sets, and without owners and
// finalizers, which grant nothing.
func withoutServerMetadata(object *unstructured.Unstructured) *unstructured.Unstructured {
	content := object.DeepCopy()
	delete(content.Object, "metadata")
	content.SetNamespace(object.GetNamespace())
	content.SetName(object.GetName())
	content.SetLabels(object.GetLabels())
	content.SetAnnotations(object.GetAnnotations())
	return content
}

func (v *Decision) sooner(until time.Time) {
	if until.Before(v.Until) {
		v.Until = until
	}
}

// needed are the verbs that the executor must be allowed.
func needed(o Object) []string {
	switch {
	case o.ReadOnly:
		return []string{"get"}
	case o.Owned:
		return append(slices.Clone(verbs), "delete")
	default:
		return verbs
	}
}

// allowed reviews all names first, and the one only if that is refused.
func (c *Checker) allowed(ctx context.Context, account workv1.ManifestWorkSubjectServiceAccount, verb string, o Object) (answer, error) {
	all := o
	all.Name = ""
	a, err := c.review(ctx, account, verb, all)
	if a.allowed || err != nil {
		return a, err
	}
	return c.review(ctx, account, verb, o)
}

func (c *Checker) review(ctx context.Context, account workv1.ManifestWorkSubjectServiceAccount, verb string, o Object) (answer, error) {
	q := reviewKey{account: username(account), verb: verb, GroupResource: o.GroupResource(), NamespacedName: o.NamespacedName}
	return c.once(q, func() (allowed, remember bool, err error) {
		review, err := c.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: q.account, Groups: groups(account),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: o.Group, Version: o.Version, Resource: o.Resource, Namespace: o.Namespace, Name: o.Name,
			},
		}}, metav1.CreateOptions{})
		if err != nil {
			return false, false, err
		}
		return review.Status.Allowed, review.Status.Allowed || o.Name == "", nil
	})
}

// once answers a query from memory, or has it found out; several works that need it at the same time share one review.
func (c *Checker) once(q reviewKey, find func() (allowed, remember bool, err error)) (answer, error) {
	if cached, ok := c.recall(q); ok {
		return cached, nil
	}
	found, err, _ := c.inFlight.Do(fmt.Sprint(q), func() (any, error) {
		a := answer{until: c.clock.Now().Add(remembered)}
		allowed, remember, err := find()
		a.allowed = allowed
		if err == nil && remember {
			c.remember(q, a)
		}
		return a, err
	})
	return found.(answer), err
}

func (c *Checker) recall(q reviewKey) (a answer, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, known = c.answers[q]
	return a, known && c.clock.Now().Before(a.until)
}

func (c *Checker) remember(q reviewKey, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if now.Sub(c.swept) > remembered {
		for old, a := range c.answers {
			if !now.Before(a.until) {
				delete(c.answers, old)
			}
		}
		c.swept = now
	}
	c.answers[q] = a
}

// checkEscalation makes sure that the executor does not give away rights that it does not have: the API server refuses a role
// or binding that does, even if it is only to be tried.
func (c *Checker) checkEscalation(ctx context.Context, account workv1.ManifestWorkSubjectServiceAccount, o Object) (until time.Time,
	err error) {
	q := reviewKey{
		account: username(account), verb: "create", GroupResource: o.GroupResource(), NamespacedName: o.NamespacedName,
		content: manifest.Hash(o.Content),
	}
	a, err := c.once(q, func() (allowed, remember bool, err error) {
		err = c.tryAs(ctx, account, o)
		return err == nil, err == nil, err
	})
	return a.until, err
}

// tryAs has the API server try, as the account, to make the object, or to update it if the content has a resource version. The API server
// knows the groups of a service account: an agent that named them would need the right to impersonate groups, too, which would make it an
// administrator.
func (c *Checker) tryAs(ctx context.Context, account workv1.ManifestWorkSubjectServiceAccount, o Object) error {
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: username(account)}
	as, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("act as ServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	resource := as.Resource(o.GroupVersionResource).Namespace(o.Namespace)
	switch {
	case o.Content.GetResourceVersion() != "":
		_, err = resource.Update(ctx, o.Content, metav1.UpdateOptions{DryRun: dryRun})
	case o.Group == rbacGroup:
		_, err = resource.Create(ctx, manifest.ForCreate(o.Content), metav1.CreateOptions{DryRun: dryRun})
	default:
		err = tryCreation(ctx, resource, manifest.ForCreate(o.Content))
	}
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsForbidden(err) && !isOfNamespace(err, o):
		return &refusedError{denial(account, o, err)}
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), noDryRun):
		return fmt.Errorf("try %s %s as ServiceAccount %s/%s, which needs webhooks with sideEffects None or NoneOnDryRun: %w", o.Resource,
			o.NamespacedName, account.Namespace, account.Name, err)
	default:
		return fmt.Errorf("try %s %s as ServiceAccount %s/%s: %w", o.Resource, o.NamespacedName, account.Namespace, account.Name, err)
	}
}

// tryCreation has an object made by an apply, which has the name, as the agent's reviews have: a request to create has none for rules with
// resourceNames. If an apply gets no answer about rights or admission, the API server is asked to create the object: some know no applies,
// or make no object by them, and fields that the schema does not declare are refused by an apply alone.
func tryCreation(ctx context.Context, resource dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	options := metav1.ApplyOptions{FieldManager: managedfields.Agent, Force: true, DryRun: dryRun}
	_, err := resource.Apply(ctx, object.GetName(), object, options)
	if err == nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return err
	}
	_, err = resource.Create(ctx, object, metav1.CreateOptions{DryRun: dryRun})
	return err
}

// dryRun has the API server only try a write.
var dryRun = []string{metav1.DryRunAll}

// noDryRun is what an API server says of a webhook that it cannot call in a dry run.
const noDryRun = "does not support dry run"

// denial says what the account lacks of which the API server has refused to try the object.
func denial(account workv1.ManifestWorkSubjectServiceAccount, o Object, err error) error {
	if o.Group == rbacGroup {
		return fmt.Errorf("not allowed to apply %s %s: ServiceAccount %s/%s would give away rights that it does not have; "+
			"grant it these rights itself, or the verbs escalate and bind on %s: %w", o.Resource, o.NamespacedName, account.Namespace, account.Name,
			o.Resource, err)
	}
	return fmt.Errorf("not allowed to apply %s %s: ServiceAccount %s/%s could not do so itself; grant it what is asked for: %w", o.Resource,
		o.NamespacedName, account.Namespace, account.Name, err)
}

// isOfNamespace reports whether an object is refused because its namespace takes no more: it is being deleted, or has a quota, which counts
// an existing object once more. That says nothing about rights. Only how the message starts counts: the rest may repeat what the
// author of a role has written.
func isOfNamespace(err error, o Object) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		strings.HasPrefix(err.Error(), fmt.Sprintf("%s %q is forbidden: exceeded quota: ", o.GroupResource(), o.Name))
}

// refusal names the rule that is missing and how to add it: by a role for these verbs and this resource, as there may be one for others
// already.
func refusal(account workv1.ManifestWorkSubjectServiceAccount, missing []string, o Object) error {
	resource, verbs := o.GroupResource().String(), strings.Join(missing, ",")
	role, subject := strings.Join(append([]string{account.Name, resource}, missing...), "-"), account.Namespace+":"+account.Name
	where, grant := "in the whole cluster", fmt.Sprintf("kubectl create clusterrole %[1]s --verb=%[2]s --resource=%[3]s && "+
		"kubectl create clusterrolebinding %[1]s --clusterrole=%[1]s --serviceaccount=%[4]s",
		"work-"+account.Namespace+"-"+role, verbs, resource, subject)
	if o.Namespace != "" {
		where, grant = fmt.Sprintf("in namespace %q", o.Namespace),
			fmt.Sprintf("kubectl -n %[5]s create role %[1]s --verb=%[2]s --resource=%[3]s && "+
				"kubectl -n %[5]s create rolebinding %[1]s --role=%[1]s --serviceaccount=%[4]s",
				"work-"+role, verbs, resource, subject, o.Namespace)
	}
	return fmt.Errorf("not allowed to apply %s %s: the executor of the work, ServiceAccount %s/%s, lacks the verbs [%s] on resource %q in API group %q %s; "+
		"grant them on the managed cluster, for instance with: %s",
		o.Resource, o.NamespacedName, account.Namespace, account.Name, strings.Join(missing, " "), o.Resource, o.Group, where, grant)
}

func username(account workv1.ManifestWorkSubjectServiceAccount) string {
	return fleet.ServiceAccountUser(account.Namespace, account.Name)
}

func groups(account workv1.ManifestWorkSubjectServiceAccount) []string {
	return fleet.ServiceAccountGroups(account.Namespace)
}
