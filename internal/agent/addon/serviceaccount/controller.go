// Package serviceaccount is the agent of the built-in add-on managed-serviceaccount: for each ManagedServiceAccount of its cluster on the
// hub, it keeps a service account of the same name on the managed cluster, and a token of it in a Secret on the hub.
package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/addon/builtin"
	"github.com/capstan-io/capstan/internal/agent/addon/install"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/tokenaccounts"
	"github.com/capstan-io/capstan/internal/tokenaccounts/controllerclient"
)

const (
	// The wait after a failure doubles from the first to the last.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// workers is how many accounts are reconciled at once: each takes a few requests to both clusters.
	workers = 4
	// afterDue is how long after it is due a token is reconciled again, so that it is due by any rounding.
	afterDue = 5 * time.Second
)

// Options configure the controller.
type Options struct {
	// Hub has the ManagedClusterAddOns, of which the controller reads the cache.
	Hub cluster.Cluster
	// Uncached writes on the hub.
	Uncached client.Client
	// Cluster is the name of the cluster, and of its namespace on the hub.
	Cluster string
	// HubHash and Agent, the ID of the agent, distinguish the service accounts of this agent from those of agents for other hubs, on which the
	// cluster may have the same name.
	HubHash, Agent string
	// Managed is the managed cluster.
	Managed *rest.Config
	// Recorder records events on the hub.
	Recorder events.EventRecorder
	Clock    clock.Clock
}

// Controller reconciles the ManagedServiceAccounts of a cluster, by their names, and, without a name, the add-on.
type Controller struct {
	Options
	hub                  client.Reader
	managed              client.Client // without a cache
	hubSide, managedSide side
	ca                   func() ([]byte, error)

	queue queue
	ctx   context.Context //nolint:containedctx // that of the source, which ends all sessions

	// switching is locked while the add-on is switched on or off, and shared by those who work in a session.
	switching sync.RWMutex
	session   *session
	// cleared says that there are no accounts in other namespaces than that of the session, and nowhere without a session.
	cleared bool

	mu sync.Mutex
	// renewed has the last token of each account that this process has got.
	renewed map[string]renewal
	// settled has the accounts about which there is nothing to do until their token is due, unless something changes.
	settled map[string]settled
}

// renewal is a token and when, by the clock of the agent, it was issued.
type renewal struct {
	at    time.Time
	token claims
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c, err := newController(o)
	if err != nil {
		return err
	}
	theAddOn := predicate.NewTypedPredicateFuncs(func(addOn *addonv1beta1.ManagedClusterAddOn) bool {
		return addOn.Name == fleet.AddOnManagedServiceAccount
	})
	toItself := handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *addonv1beta1.ManagedClusterAddOn) []reconcile.Request {
		return []reconcile.Request{c.request("")}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("addon-managedserviceaccount-token").
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		WatchesRawSource(source.Func(c.start)).
		WatchesRawSource(source.Kind(o.Hub.GetCache(), &addonv1beta1.ManagedClusterAddOn{}, toItself, theAddOn)).
		Complete(c)
}

func newController(o Options) (*Controller, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), meta.RESTScopeRoot)
	transport, err := rest.HTTPClientFor(o.Managed)
	if err != nil {
		return nil, fmt.Errorf("connect to the managed cluster %s: %w", o.Managed.Host, err)
	}
	managed, err := client.New(o.Managed, client.Options{HTTPClient: transport, Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connect to the managed cluster %s: %w", o.Managed.Host, err)
	}
	return &Controller{
		Options: o, hub: o.Hub.GetClient(), managed: managed,
		hubSide: side{config: o.Hub.GetConfig(), http: o.Hub.GetHTTPClient(), scheme: o.Hub.GetScheme(), mapper: o.Hub.GetRESTMapper(),
			within: o.Cluster},
		managedSide: side{config: o.Managed, http: transport, scheme: scheme, mapper: mapper},
		ca:          func() ([]byte, error) { return certificateAuthority(o.Managed) },
		renewed:     map[string]renewal{},
		settled:     map[string]settled{},
	}, nil
}

// start is called before the first reconcile. What was left while the agent did not run is found by the first reconcile of the add-on,
// which has an event only if it exists.
func (c *Controller) start(ctx context.Context, queue queue) error {
	c.ctx, c.queue = ctx, queue
	queue.Add(c.request(""))
	c.watchAuthority(ctx)
	return nil
}

func (c *Controller) request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: c.Cluster, Name: name}}
}

// Reconcile switches the add-on on and off, or keeps the account and token of one ManagedServiceAccount.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Name == "" {
		return ctrl.Result{}, c.reconcileAddOn(ctx)
	}
	c.switching.RLock()
	defer c.switching.RUnlock()
	if c.session == nil || !c.session.hasSynced() {
		return ctrl.Result{}, nil // all are enqueued when it is known
	}
	return c.reconcileAccount(ctx, c.session, req.Name)
}

func (c *Controller) reconcileAddOn(ctx context.Context) error {
	key := client.ObjectKey{Namespace: c.Cluster, Name: fleet.AddOnManagedServiceAccount}
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	err := c.hub.Get(ctx, key, addOn)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get ManagedClusterAddOn %s: %w", key, err)
	}
	if err != nil || !fleet.IsBuiltIn(addOn) || !addOn.DeletionTimestamp.IsZero() {
		return errors.Join(explain(c.switchOff(ctx)), c.takeBack(ctx, addOn))
	}
	s, err := c.switchOn(ctx, install.Namespace(addOn))
	if s == nil {
		return err
	}
	return errors.Join(err, c.report(ctx, addOn, availability(s, err)))
}

// switchOn returns the session of the namespace. It fails if accounts are left in another namespace, in which they were before; those in
// its own are known to the session, and so is what of them is not wanted.
func (c *Controller) switchOn(ctx context.Context, namespace string) (*session, error) {
	c.switching.Lock()
	defer c.switching.Unlock()
	if c.session == nil || c.session.namespace != namespace {
		c.endSession()
		started, err := c.startSession(c.ctx, namespace, c.queue) //nolint:contextcheck // it lasts longer than the reconcile that starts it
		if err != nil {
			return nil, err
		}
		c.session = started
	}
	return c.session, c.clear(ctx, namespace)
}

// switchOff removes the accounts, and so takes all of their tokens back.
func (c *Controller) switchOff(ctx context.Context) error {
	c.switching.Lock()
	defer c.switching.Unlock()
	c.endSession()
	return c.clear(ctx, "")
}

func (c *Controller) endSession() {
	if c.session != nil {
		c.session.end()
		c.session, c.cleared = nil, false
	}
}

// removeAll deletes all accounts of this agent in a namespace. An agent that may not list them in the usual one has made none there; others
// it knows because it has made some.
func (c *Controller) removeAll(ctx context.Context, namespace string) error {
	accounts, err := tokenaccounts.List(ctx, c.managedAccounts(), namespace)
	if apierrors.IsForbidden(err) && namespace == fleet.NamespaceAgentAddOn {
		return nil
	}
	if err != nil {
		return err
	}
	return tokenaccounts.Remove(ctx, c.managedAccounts(), accounts, c.isOwn)
}

func (c *Controller) managedAccounts() tokenaccounts.Cluster { return controllerclient.On(c.managed) }

// availability is the condition of the add-on that follows from the session, and from why accounts are left elsewhere.
func availability(s *session, left error) metav1.Condition {
	condition := metav1.Condition{Type: fleet.ConditionAvailable}
	failures := s.failures()
	if left != nil {
		failures = append(failures, left)
	}
	switch {
	case left == nil && s.hasSynced():
		condition.Status, condition.Reason = metav1.ConditionTrue, fleet.ReasonBuiltInRunning
		condition.Message = "The agent of the cluster keeps the accounts and tokens of ManagedServiceAccounts in namespace " + s.namespace
	case len(failures) > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, fleet.ReasonBuiltInFailed
		var words []string
		for _, failure := range failures {
			words = append(words, explain(failure).Error())
		}
		slices.Sort(words)
		condition.Message = strings.Join(words, "; ")
	default:
		condition.Status, condition.Reason = metav1.ConditionUnknown, fleet.ReasonBuiltInStarting
		condition.Message = "The agent of the cluster reads what there is"
	}
	return condition
}

func (c *Controller) report(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, condition metav1.Condition) error {
	before := addOn.DeepCopy()
	condition.LastTransitionTime = metav1.NewTime(c.Clock.Now())
	meta.SetStatusCondition(&addOn.Status.Conditions, condition)
	return c.write(ctx, addOn, before)
}

// takeBack removes what this controller has reported of an add-on that is another manager's now.
func (c *Controller) takeBack(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) error {
	before := addOn.DeepCopy()
	builtin.TakeBack(addOn, fleet.ReasonBuiltInRunning, fleet.ReasonBuiltInFailed, fleet.ReasonBuiltInStarting)
	return c.write(ctx, addOn, before)
}

// write writes the status of the add-on if it has changed.
func (c *Controller) write(ctx context.Context, addOn, before *addonv1beta1.ManagedClusterAddOn) error {
	_, err := patch.Status(ctx, c.Uncached, addOn, before)
	if apierrors.IsConflict(err) {
		return nil // the newer state is an event
	}
	return client.IgnoreNotFound(err)
}

// ensureAccount returns the service account on the managed cluster, and makes it, and its namespace, where there is none.
func (c *Controller) ensureAccount(ctx context.Context, namespace string, owner *authenticationv1beta1.ManagedServiceAccount,
) (account *corev1.ServiceAccount, err error) {
	account = &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: namespace, Name: owner.Name}
	err = c.managed.Get(ctx, key, account)
	if apierrors.IsNotFound(err) {
		return c.createAccount(ctx, key, owner)
	}
	if err != nil {
		return nil, fmt.Errorf("get service account %s on the managed cluster: %w", key, err)
	}
	if !account.DeletionTimestamp.IsZero() {
		return nil, fmt.Errorf("the service account %s is being deleted on the managed cluster", key)
	}
	if account.Labels[fleet.LabelManagedServiceAccount] != fleet.LabelTrue {
		return nil, fmt.Errorf("the service account %s is there already on the managed cluster, and was not made for a ManagedServiceAccount: "+
			"choose another name; or, for the hub to have its tokens and to delete it, give it the label %s=%s", key,
			fleet.LabelManagedServiceAccount, fleet.LabelTrue)
	}
	of, another := account.Annotations[fleet.AnnotationOwnerUID], c.isOfAnother(account)
	if another && of != string(owner.UID) {
		return nil, fmt.Errorf("the service account %s on the managed cluster is that of a ManagedServiceAccount of cluster %q, of another hub: "+
			"choose another name, or another namespace with an AddOnDeploymentConfig", key, account.Labels[fleet.LabelClusterName])
	}
	if another || of != "" && of != string(owner.UID) {
		// It is marked with the hub and the agent of before, though it is for this very ManagedServiceAccount. Or for an earlier one of the
		// name: who deletes that wants its tokens to end.
		if err := c.remove(ctx, account); err != nil {
			return nil, err
		}
		return c.createAccount(ctx, key, owner)
	}
	if err := c.markNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	if !c.isOwn(account) || account.Annotations[fleet.AnnotationAgentID] != c.Agent {
		return account, c.takeOver(ctx, account, owner)
	}
	return account, nil
}

// takeOver marks a service account that nobody has marked, such as one that the agent of Open Cluster Management has made, or that an agent
// before this one has made for the same hub: from then on, agents for other hubs leave it alone, and it goes when this one leaves. Of two
// that take it over at once, one has a conflict. Without the right to change it, its tokens are kept up to date all the same.
func (c *Controller) takeOver(ctx context.Context, account *corev1.ServiceAccount, owner *authenticationv1beta1.ManagedServiceAccount,
) error {
	before := account.DeepCopy()
	c.mark(account, owner)
	_, err := patch.Object(ctx, c.managed, account, before)
	if apierrors.IsForbidden(err) {
		log.FromContext(ctx).Info("The service account stays when the agent leaves: it may not mark it as its own", "serviceAccount",
			client.ObjectKeyFromObject(account), "reason", err.Error())
		return nil
	}
	if err != nil {
		return fmt.Errorf("take over a service account on the managed cluster: %w", err)
	}
	return nil
}

// mark says on a service account which agent keeps it, and for what.
func (c *Controller) mark(account *corev1.ServiceAccount, owner *authenticationv1beta1.ManagedServiceAccount) {
	metav1.SetMetaDataLabel(&account.ObjectMeta, fleet.LabelManagedServiceAccount, fleet.LabelTrue)
	metav1.SetMetaDataLabel(&account.ObjectMeta, fleet.LabelClusterName, c.Cluster)
	metav1.SetMetaDataAnnotation(&account.ObjectMeta, fleet.AnnotationOwnerUID, string(owner.UID))
	metav1.SetMetaDataAnnotation(&account.ObjectMeta, fleet.AnnotationHubHash, c.HubHash)
	metav1.SetMetaDataAnnotation(&account.ObjectMeta, fleet.AnnotationAgentID, c.Agent)
}

func (c *Controller) createAccount(ctx context.Context, key client.ObjectKey, owner *authenticationv1beta1.ManagedServiceAccount,
) (*corev1.ServiceAccount, error) {
	if err := c.markNamespace(ctx, key.Namespace); err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	c.mark(account, owner)
	if err := c.managed.Create(ctx, account); err != nil {
		return nil, fmt.Errorf("create service account %s on the managed cluster: %w", key, err)
	}
	return account, nil
}

// removeAccount deletes the service account of a ManagedServiceAccount that is gone, and with it all of its tokens.
func (c *Controller) removeAccount(ctx context.Context, s *session, name string) error {
	account := &corev1.ServiceAccount{}
	if err := s.managed.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, account); err != nil {
		return client.IgnoreNotFound(err) // those without the label are not in the cache
	}
	if !c.isOwn(account) {
		return nil
	}
	return c.remove(ctx, account)
}

// isOwn reports whether a service account is marked as that of this agent. One without marks may be meant for another hub.
func (c *Controller) isOwn(account *corev1.ServiceAccount) bool {
	return account.Labels[fleet.LabelClusterName] == c.Cluster && !c.isOfAnother(account)
}

// isOfAnother reports whether a service account is that of an agent for another cluster, or for another hub. What this agent has made is
// its own also when its hub has another address, or it has another hub; and so is what an agent before it has made for the same hub.
func (c *Controller) isOfAnother(account *corev1.ServiceAccount) bool {
	cluster, hub := account.Labels[fleet.LabelClusterName], account.Annotations[fleet.AnnotationHubHash]
	return cluster != "" && cluster != c.Cluster ||
		hub != "" && hub != c.HubHash && account.Annotations[fleet.AnnotationAgentID] != c.Agent
}

func (c *Controller) remove(ctx context.Context, account *corev1.ServiceAccount) error {
	return tokenaccounts.RemoveOne(ctx, c.managedAccounts(), account)
}

// isValid reviews whether the managed cluster accepts a token: its signing keys may be others by now. Where the agent may not create
// reviews, what the token says of itself has to do.
func (c *Controller) isValid(ctx context.Context, token []byte) (bool, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: string(token)}}
	err := c.managed.Create(ctx, review)
	if apierrors.IsForbidden(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("review a token on the managed cluster: %w", err)
	}
	return review.Status.Authenticated, nil
}

// newToken requests from the managed cluster a token of an account.
func (c *Controller) newToken(ctx context.Context, w requirements) ([]byte, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(w.validity.Seconds()))}}
	if err := c.managed.SubResource("token").Create(ctx, w.account.DeepCopy(), request); err != nil {
		return nil, fmt.Errorf("request a token of service account %s on the managed cluster: %w", client.ObjectKeyFromObject(w.account), err)
	}
	return []byte(request.Status.Token), nil
}

// saveToken writes the Secret on the hub.
func (c *Controller) saveToken(ctx context.Context, w requirements, before *corev1.Secret, token []byte) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Cluster, Name: w.owner.Name}}
	if before != nil {
		secret = before.DeepCopy()
	}
	if secret.Labels == nil {
		secret.Labels = map[string]string{}
	}
	secret.Labels[fleet.LabelManagedServiceAccount] = fleet.LabelTrue
	secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: authenticationv1beta1.GroupVersion.String(), Kind: "ManagedServiceAccount",
		Name: w.owner.Name, UID: w.owner.UID}}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, fleet.AnnotationRequestedValidity, w.validity.String())
	secret.Type = corev1.SecretTypeOpaque
	secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: token, corev1.ServiceAccountRootCAKey: w.ca}
	key := client.ObjectKeyFromObject(secret)
	if before != nil {
		if err := c.Uncached.Update(ctx, secret); err != nil {
			return fmt.Errorf("update Secret %s on the hub: %w", key, err)
		}
		return nil
	}
	err := c.Uncached.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("the Secret %s is there already on the hub, and was not made for a ManagedServiceAccount: delete it, or choose "+
			"another name: %w", key, err)
	}
	if err != nil {
		return fmt.Errorf("create Secret %s on the hub: %w", key, err)
	}
	return nil
}
