// Package profilecredentials copies tokens of ManagedServiceAccounts to the namespaces of the ClusterProfiles of their clusters, for the
// accounts whose label requests it. Whoever may read Secrets in such a namespace has the token.
//
// Whoever may write ClusterProfiles in a namespace can make one for any cluster there. So a profile counts only if the hub presents the
// cluster in that namespace: one of its sets is bound there.
package profilecredentials

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/registration/clusterprofile"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/repairclient"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

const (
	workers = 5
	// blockedInterval is how often it is checked whether a Secret that somebody else made has gone, for which there is no event.
	blockedInterval = time.Minute
	// indexCluster finds profiles by their cluster, whose name they have.
	indexCluster = "profilecredentials.cluster"
)

// Controller reconciles the copies of the tokens of ManagedServiceAccounts.
type Controller struct {
	client client.Client
	// tokens reads the Secrets of the accounts.
	tokens client.Reader
	// copies reads and writes the copies.
	copies   client.Client
	recorder events.EventRecorder
}

// New returns a Controller that works through the client, whose cache has the index of Register. It reads the Secrets of accounts through
// another one, and copies through a third, which has to see what it has written.
func New(c client.Client, tokens client.Reader, copies client.Client, recorder events.EventRecorder) *Controller {
	return &Controller{client: c, tokens: tokens, copies: copies, recorder: recorder}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager) error {
	// The cache of the manager has no Secrets, of which there may be many, with all kinds of content.
	tokens, err := newCache(mgr, fleet.LabelManagedServiceAccount+"="+fleet.LabelTrue)
	if err != nil {
		return err
	}
	copies, err := newCache(mgr, fleet.LabelSyncedFrom)
	if err != nil {
		return err
	}
	writer, err := repairclient.NewClient(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), Cache: &client.CacheOptions{Reader: copies},
	})
	if err != nil {
		return fmt.Errorf("make the client for copies of tokens: %w", err)
	}
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	profile := &multiclusterv1alpha1.ClusterProfile{}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), profile, indexCluster, byName); err != nil {
		return err
	}
	c := New(mgr.GetClient(), tokens, writer, mgr.GetEventRecorder("cluster-profile-credentials"))
	ofCluster := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return c.accounts(ctx, client.InNamespace(o.GetName()))
	})
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return c.accounts(ctx) })
	labelChanged := predicate.Or(predicates.Recreated(), predicate.Predicate(predicate.LabelChangedPredicate{}))
	return ctrl.NewControllerManagedBy(mgr).Named("addon-managedserviceaccount-profile").
		For(&authenticationv1beta1.ManagedServiceAccount{}, builder.WithPredicates(predicates.Either(requestsCopies), predicate.Or(
			predicates.Generation(), predicate.Predicate(predicate.LabelChangedPredicate{})))).
		Watches(&multiclusterv1alpha1.ClusterProfile{}, ofCluster, builder.WithPredicates(predicates.Generation())).
		Watches(&clusterv1.ManagedCluster{}, ofCluster, builder.WithPredicates(predicate.Or(predicates.Generation(), labelChanged))).
		Watches(&clusterv1beta2.ManagedClusterSetBinding{}, all).
		Watches(&clusterv1beta2.ManagedClusterSet{}, all, builder.WithPredicates(predicates.Generation())).
		WatchesRawSource(source.Kind(tokens, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, token *corev1.Secret) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(token)}}
			}))).
		WatchesRawSource(source.Kind(copies, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, written *corev1.Secret) []reconcile.Request {
				account, isCopy := accountOf(written)
				if !isCopy {
					return nil
				}
				return []reconcile.Request{{NamespacedName: account}}
			}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// newCache makes a cache of the Secrets that a selector selects, and has the manager run it.
func newCache(mgr ctrl.Manager, selector string) (cache.Cache, error) {
	selected, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	made, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: selected}},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of Secrets with %s: %w", selector, err)
	}
	return made, mgr.Add(made)
}

// requestsCopies reports whether the label of an account requests copies.
func requestsCopies(account client.Object) bool {
	return account.GetLabels()[fleet.LabelSyncToClusterProfile] == fleet.LabelTrue
}

// accounts are those whose label requests copies.
func (c *Controller) accounts(ctx context.Context, which ...client.ListOption) (requests []reconcile.Request) {
	list := &authenticationv1beta1.ManagedServiceAccountList{}
	which = append(which, client.MatchingLabels{fleet.LabelSyncToClusterProfile: fleet.LabelTrue}, client.UnsafeDisableDeepCopy)
	if err := c.client.List(ctx, list, which...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the ManagedServiceAccounts whose tokens are copied")
		return nil
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile has a copy of the token of an account next to each profile of its cluster, and nowhere else.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	account := &authenticationv1beta1.ManagedServiceAccount{}
	if err := c.client.Get(ctx, req.NamespacedName, account); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get ManagedServiceAccount %s: %w", req, err)
	}
	want, err := c.desiredSecrets(ctx, req.NamespacedName, account)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := c.removeOthers(ctx, req.NamespacedName, want); err != nil {
		return ctrl.Result{}, err
	}
	var blocked, failed []error
	for copied := range maps.Values(want) {
		if err := c.write(ctx, copied); errors.Is(err, errOfAnother) {
			blocked = append(blocked, err)
		} else if err != nil {
			failed = append(failed, err)
		}
	}
	if len(blocked) == 0 {
		return ctrl.Result{}, errors.Join(failed...)
	}
	c.report(account, errors.Join(blocked...))
	return ctrl.Result{RequeueAfter: blockedInterval}, errors.Join(failed...)
}

// desiredSecrets are the copies that there should be, by their namespaces.
func (c *Controller) desiredSecrets(ctx context.Context, key client.ObjectKey,
	account *authenticationv1beta1.ManagedServiceAccount) (map[string]*corev1.Secret, error) {
	if !requestsCopies(account) || !account.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	if err := checkName(key); err != nil {
		c.report(account, err)
		return nil, nil
	}
	// Only what agents may write is the token of an account, whatever else there is under its name.
	token := &corev1.Secret{}
	if err := c.tokens.Get(ctx, key, token); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", key, err)
	}
	if len(token.Data[corev1.ServiceAccountTokenKey]) == 0 {
		return nil, nil
	}
	profiles := &multiclusterv1alpha1.ClusterProfileList{}
	if err := c.client.List(ctx, profiles, client.MatchingFields{indexCluster: key.Namespace}); err != nil {
		return nil, fmt.Errorf("list the ClusterProfiles of cluster %s: %w", key.Namespace, err)
	}
	want := map[string]*corev1.Secret{}
	for i := range profiles.Items {
		profile := &profiles.Items[i]
		presented, err := clusterprofile.IsOfHub(ctx, c.client, profile)
		if err != nil {
			return nil, err
		}
		if presented {
			want[profile.Namespace] = copyOf(token, key, profile)
		}
	}
	return want, nil
}

// removeOthers deletes the copies that there should not be.
func (c *Controller) removeOthers(ctx context.Context, account client.ObjectKey, want map[string]*corev1.Secret) error {
	if err := checkName(account); err != nil {
		return nil //nolint:nilerr // such an account has no copies
	}
	list := &corev1.SecretList{}
	ofAccount := client.MatchingLabels{fleet.LabelSyncedFrom: nameOf(account)}
	if err := c.copies.List(ctx, list, ofAccount, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the copies of the token of ManagedServiceAccount %s: %w", account, err)
	}
	var failed []error
	for i := range list.Items {
		secret := &list.Items[i]
		if fleet.TokenCopyCluster(secret) != account.Namespace || want[secret.Namespace] != nil {
			continue
		}
		only := client.Preconditions{UID: &[]types.UID{secret.UID}[0]}
		gone := &corev1.Secret{ObjectMeta: *secret.ObjectMeta.DeepCopy()}
		if err := c.copies.Delete(ctx, gone, only); client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("delete Secret %s: %w", client.ObjectKeyFromObject(secret), err))
		}
	}
	return errors.Join(failed...)
}

// errOfAnother says that a Secret is there that is no copy of this token.
var errOfAnother = errors.New("it is not a copy of this token; delete it, or rename the ManagedServiceAccount")

// write writes what is different of a copy.
func (c *Controller) write(ctx context.Context, want *corev1.Secret) error {
	key := client.ObjectKeyFromObject(want)
	secret := &corev1.Secret{}
	if err := c.copies.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return c.create(ctx, want)
	} else if err != nil {
		return fmt.Errorf("get Secret %s: %w", key, err)
	}
	if fleet.TokenCopyCluster(secret) != fleet.TokenCopyCluster(want) {
		return fmt.Errorf("copy a token to Secret %s: %w", key, errOfAnother)
	}
	before := secret.DeepCopy()
	secret.Data, secret.OwnerReferences = want.Data, want.OwnerReferences
	maps.Copy(secret.Labels, want.Labels)
	if equality.Semantic.DeepEqual(before, secret) {
		return nil
	}
	_, err := patch.Object(ctx, c.copies, secret, before)
	return client.IgnoreNotFound(err)
}

func (c *Controller) create(ctx context.Context, want *corev1.Secret) error {
	key := client.ObjectKeyFromObject(want)
	err := c.copies.Create(ctx, want)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("copy a token to Secret %s: %w", key, errOfAnother)
	}
	if err != nil {
		return fmt.Errorf("create Secret %s: %w", key, err)
	}
	return nil
}

// report says why a token is not copied.
func (c *Controller) report(account *authenticationv1beta1.ManagedServiceAccount, why error) {
	c.recorder.Eventf(account, nil, corev1.EventTypeWarning, fleet.EventTokenNotCopied, "CopyToken",
		"The token is not copied to all ClusterProfiles of the cluster: %v", why)
}
