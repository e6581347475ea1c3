// Package builtin manages the add-ons whose code is in the hub and in the agents of clusters. They have no manager of their own and put
// nothing on a cluster: where one is installed, the agent of the cluster gets the rights that it needs, and then does the work.
package builtin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/config"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

const (
	// manager labels the Roles and RoleBindings of built-in add-ons.
	manager = "built-in"
	// workers is how many add-ons are reconciled at once.
	workers = 5
	// indexConfig finds the ManagedClusterAddOns with an AddOnDeploymentConfig. There may be one for each cluster.
	indexConfig = "builtin.config"
)

// Options configure the controllers.
type Options struct {
	// Names are the add-ons whose ClusterManagementAddOns are created where they are absent.
	Names []string
	// Served are the add-ons whose ManagedClusterAddOns are reconciled; empty means all that are built in.
	Served []string
	// ClusterRole is one with the rights of an add-on, to which its RoleBindings then refer. It is for a process that may bind the
	// ClusterRole and does not have its rights. Empty means that Roles are made.
	ClusterRole string
	// Labels are set on all objects that are created for an add-on, in addition to its own.
	Labels map[string]string
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles the ManagedClusterAddOns of built-in add-ons.
type Controller struct {
	Options
	client client.Client
}

// New returns a Controller that works through the client, whose reads of unstructured objects should come from a cache.
func New(c client.Client, o Options) *Controller { return &Controller{Options: o, client: c} }

// Register adds the controllers to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	cached, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: mgr.GetCache(), Unstructured: true},
	})
	if err != nil {
		return fmt.Errorf("make the client of built-in add-ons: %w", err)
	}
	if len(o.Names) > 0 {
		if err := NewCatalogue(mgr.GetClient(), o.Names).register(mgr); err != nil {
			return err
		}
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &addonv1beta1.ManagedClusterAddOn{}, indexConfig, configsOf); err != nil {
		return fmt.Errorf("index ManagedClusterAddOns by their configurations: %w", err)
	}
	c := New(cached, o)
	ofAddOn := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[fleet.LabelAddOnName]}}}
	})
	marked := builder.WithPredicates(predicate.NewPredicateFuncs(isMarked))
	served := predicate.NewPredicateFuncs(c.serves)
	all := ctrl.NewControllerManagedBy(mgr).Named("addon-managedclusteraddon-builtin").
		For(&addonv1beta1.ManagedClusterAddOn{}, builder.WithPredicates(served)).
		Watches(&rbacv1.RoleBinding{}, ofAddOn, marked)
	if o.ClusterRole == "" {
		all = all.Watches(&rbacv1.Role{}, ofAddOn, marked)
	}
	return all.
		// The status may name a state of a configuration before the cache has it.
		Watches(deploymentConfig(), handler.EnqueueRequestsFromMapFunc(c.configuredBy)).
		Watches(&addonv1beta1.ClusterManagementAddOn{}, handler.EnqueueRequestsFromMapFunc(lookup.OnAllClusters(c.client)),
			builder.WithPredicates(served, predicate.AnnotationChangedPredicate{})).
		Watches(&clusterv1.ManagedCluster{}, handler.EnqueueRequestsFromMapFunc(lookup.OnCluster(c.client)),
			builder.WithPredicates(acceptanceChanged())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

func deploymentConfig() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(addonv1beta1.GroupVersion.WithKind("AddOnDeploymentConfig"))
	return o
}

// configuredBy are the add-ons that have the configuration.
func (c *Controller) configuredBy(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	all, by := &addonv1beta1.ManagedClusterAddOnList{}, client.MatchingFields{indexConfig: client.ObjectKeyFromObject(o).String()}
	if err := c.client.List(ctx, all, by, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "List the add-ons with a configuration", "configuration", client.ObjectKeyFromObject(o))
		return nil
	}
	for i := range all.Items {
		if addOn := &all.Items[i]; c.serves(addOn) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(addOn)})
		}
	}
	return requests
}

// configsOf returns the AddOnDeploymentConfigs that an add-on has.
func configsOf(o client.Object) (keys []string) {
	addOn, ok := o.(*addonv1beta1.ManagedClusterAddOn)
	if !ok {
		return nil
	}
	for _, r := range addOn.Status.ConfigReferences {
		if r.Group == config.DeploymentConfigs.Group && r.Resource == config.DeploymentConfigs.Resource && r.DesiredConfig != nil {
			keys = append(keys, client.ObjectKey{Namespace: r.DesiredConfig.Namespace, Name: r.DesiredConfig.Name}.String())
		}
	}
	return keys
}

func (c *Controller) serves(o client.Object) bool {
	_, served := c.definition(o.GetName())
	return served
}

// definition returns the add-on of a name, if it is built in and served.
func (c *Controller) definition(name string) (definition addOn, served bool) {
	definition, known := addOns[name]
	return definition, known && (len(c.Served) == 0 || slices.Contains(c.Served, name))
}

func isMarked(o client.Object) bool {
	return o.GetLabels()[fleet.LabelAddOnManager] == manager
}

func acceptanceChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*clusterv1.ManagedCluster)
		after, too := e.ObjectNew.(*clusterv1.ManagedCluster)
		return ok && too && managedcluster.Accepted(before) != managedcluster.Accepted(after)
	}}
}

// Reconcile gives the agent of a cluster what it needs for an add-on that is installed there, or takes it away.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	definition, served := c.definition(req.Name)
	if !served {
		return ctrl.Result{}, nil
	}
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	if err := c.client.Get(ctx, req.NamespacedName, addOn); apierrors.IsNotFound(err) {
		return ctrl.Result{}, c.revoke(ctx, req.Namespace, definition)
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("get ManagedClusterAddOn %s: %w", req, err)
	}
	builtIn, err := c.isBuiltIn(ctx, addOn.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !builtIn {
		return ctrl.Result{}, c.leave(ctx, addOn, definition)
	}
	cluster := &clusterv1.ManagedCluster{}
	err = c.client.Get(ctx, client.ObjectKey{Name: addOn.Namespace}, cluster)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get ManagedCluster %s: %w", addOn.Namespace, err)
	}
	if err != nil || !managedcluster.Accepted(cluster) {
		return ctrl.Result{}, c.revoke(ctx, addOn.Namespace, definition)
	}
	if !addOn.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the agent may need its rights to the end
	}
	return ctrl.Result{}, c.serve(ctx, cluster, addOn, definition)
}

// isBuiltIn reports whether the add-on of a name is the one that is built in, and not another one of the same name.
func (c *Controller) isBuiltIn(ctx context.Context, name string) (bool, error) {
	entry := &addonv1beta1.ClusterManagementAddOn{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, entry); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("get ClusterManagementAddOn %s: %w", name, err)
	}
	return fleet.IsBuiltIn(entry), nil
}

// serve reports in the status, grants the rights, and lets the agent start when it has them.
func (c *Controller) serve(ctx context.Context, cluster *clusterv1.ManagedCluster, addOn *addonv1beta1.ManagedClusterAddOn,
	definition addOn) error {
	if meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionConfigured) == nil {
		return nil // it may have a configuration
	}
	namespace, encoded, err := c.configure(ctx, addon.Installation{Cluster: cluster, AddOn: addOn}, definition)
	var unusable *unusableError
	if errors.Is(err, addon.ErrNotYet) {
		return nil // what the configurations are to be is reported by the status
	}
	if err != nil && !errors.Is(err, config.ErrMissing) && !errors.As(err, &unusable) {
		return err
	}
	refused := err
	granted := c.grant(ctx, addOn, definition)
	before := addOn.DeepCopy()
	if refused == nil {
		addOn.Status.Namespace = namespace
		if namespace == "" {
			addOn.Status.Namespace = installNamespace(addOn)
		}
	}
	c.report(addOn, definition, refused, granted)
	if _, err := patch.Status(ctx, c.client, addOn, before); err != nil {
		return errors.Join(granted, client.IgnoreNotFound(err))
	}
	if granted != nil || refused != nil {
		return granted
	}
	return c.mark(ctx, addOn, definition, encoded)
}

// unusableError says what is wrong with a configuration. Only its author can correct that.
type unusableError struct{ cause error }

func (e *unusableError) Error() string { return e.cause.Error() }

// configure reads the configurations: the namespace that they name, or none, and what the agent gets.
func (c *Controller) configure(ctx context.Context, installation addon.Installation, definition addOn) (namespace, encoded string,
	err error) {
	if namespace, err = config.InstallNamespace(c.client)(ctx, installation); err != nil || definition.configure == nil {
		return namespace, "", err
	}
	var all []*addonv1beta1.AddOnDeploymentConfig
	err = config.ReadAll(ctx, c.client, installation, func(each *addonv1beta1.AddOnDeploymentConfig) error {
		all = append(all, each)
		return nil
	})
	if err != nil {
		return "", "", err
	}
	if encoded, err = definition.configure(all); err != nil {
		return "", "", &unusableError{err}
	}
	return namespace, encoded, nil
}

// installNamespace is where an add-on without a configuration of its namespace has it.
func installNamespace(addOn *addonv1beta1.ManagedClusterAddOn) string {
	if namespace := addOn.Annotations[fleet.AnnotationInstallNamespace]; namespace != "" {
		return namespace
	}
	return fleet.NamespaceAgentAddOn
}

// report says what managers of other add-ons say, of which the other controllers take notice.
func (c *Controller) report(addOn *addonv1beta1.ManagedClusterAddOn, definition addOn, refused, granted error) {
	now := c.Clock.Now()
	addOn.Status.SupportedConfigs = []addonv1beta1.ConfigGroupResource{
		{Group: config.DeploymentConfigs.Group, Resource: config.DeploymentConfigs.Resource}}
	// The agent of the cluster itself says how the add-on is.
	addOn.Status.HealthCheck.Mode = addonv1beta1.HealthCheckModeCustomized
	set(addOn, now, fleet.ConditionRegistrationApplied, fleet.ReasonSetPermissionApplied, fleet.ReasonSetPermissionFailed,
		definition.granted(c.ClusterRole), granted)
	set(addOn, now, fleet.ConditionManifestApplied, fleet.ReasonAddOnManifestApplied, fleet.ReasonAddOnManifestAppliedFailed,
		"The add-on is built into the agent of the cluster, and applies no manifests", refused)
}

func set(addOn *addonv1beta1.ManagedClusterAddOn, now time.Time, kind, applied, failed, message string, err error) {
	condition := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: applied, Message: message}
	if err != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, failed, text.Stable(err.Error())
	}
	condition.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&addOn.Status.Conditions, condition)
}

// mark annotates for the agent that the add-on is its, and how it is configured.
func (c *Controller) mark(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, definition addOn, encoded string) error {
	before := addOn.DeepCopy()
	metav1.SetMetaDataAnnotation(&addOn.ObjectMeta, fleet.AnnotationBuiltIn, fleet.LabelTrue)
	if encoded != "" {
		metav1.SetMetaDataAnnotation(&addOn.ObjectMeta, definition.annotation, encoded)
	} else if definition.annotation != "" {
		delete(addOn.Annotations, definition.annotation)
	}
	_, err := patch.Object(ctx, c.client, addOn, before)
	return client.IgnoreNotFound(err)
}

// leave leaves an add-on to another manager, or to none.
func (c *Controller) leave(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, definition addOn) error {
	if err := c.revoke(ctx, addOn.Namespace, definition); err != nil {
		return err
	}
	if !fleet.IsBuiltIn(addOn) || !addOn.DeletionTimestamp.IsZero() {
		return nil
	}
	before := addOn.DeepCopy()
	delete(addOn.Annotations, fleet.AnnotationBuiltIn)
	_, err := patch.Object(ctx, c.client, addOn, before)
	return client.IgnoreNotFound(err)
}

// grant gives the agent of the cluster its rights for the add-on.
func (c *Controller) grant(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, definition addOn) error {
	if definition.role == "" {
		return nil
	}
	role, binding := objects(addOn.Namespace, definition)
	bound := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: c.ClusterRole}
	if c.ClusterRole == "" {
		bound.Kind, bound.Name = "Role", role.Name
		if err := c.ensure(ctx, addOn, role, func() { role.Rules = definition.rules }); err != nil {
			return err
		}
	}
	subjects := []rbacv1.Subject{
		{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: fleet.ClusterGroup(addOn.Namespace)},
		{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: fleet.AWSClusterGroup(addOn.Namespace)},
	}
	return c.ensure(ctx, addOn, binding, func() { binding.RoleRef, binding.Subjects = bound, subjects })
}

func objects(namespace string, definition addOn) (*rbacv1.Role, *rbacv1.RoleBinding) {
	named := metav1.ObjectMeta{Namespace: namespace, Name: definition.role}
	return &rbacv1.Role{ObjectMeta: named}, &rbacv1.RoleBinding{ObjectMeta: named}
}

// ensure creates or corrects an object. It does not take over one that somebody else has made.
func (c *Controller) ensure(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, o client.Object, mutate func()) error {
	key := client.ObjectKeyFromObject(o)
	err := c.client.Get(ctx, key, o)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get %T %s: %w", o, key, err)
	}
	missing := err != nil
	if !missing && !isMarked(o) {
		return othersError(o)
	}
	before, _ := o.DeepCopyObject().(client.Object)
	labels := map[string]string{}
	maps.Copy(labels, o.GetLabels())
	maps.Copy(labels, c.Labels)
	labels[fleet.LabelClusterName], labels[fleet.LabelAddOnName], labels[fleet.LabelAddOnManager] = addOn.Namespace, addOn.Name, manager
	o.SetLabels(labels)
	if err := controllerutil.SetOwnerReference(addOn, o, c.client.Scheme()); err != nil {
		return fmt.Errorf("set the owner of %T %s: %w", o, key, err)
	}
	mutate()
	switch {
	case !missing && boundElsewhere(before, o):
		// The reference of a binding cannot be changed. Its deletion is an event, which has it made again.
		return c.delete(ctx, before)
	case !missing:
		_, err := patch.Object(ctx, c.client, o, before)
		return err
	}
	err = c.client.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		return othersError(o)
	}
	if err != nil {
		return fmt.Errorf("create %T %s: %w", o, key, err)
	}
	return nil
}

func boundElsewhere(before, after client.Object) bool {
	was, ok := before.(*rbacv1.RoleBinding)
	is, too := after.(*rbacv1.RoleBinding)
	return ok && too && !equality.Semantic.DeepEqual(was.RoleRef, is.RoleRef)
}

func othersError(o client.Object) error {
	return fmt.Errorf("%T %s/%s is there already, and was not made by this hub for its built-in add-on; delete it, and whatever manages it",
		o, o.GetNamespace(), o.GetName())
}

// revoke takes the rights of the agent of a cluster away.
func (c *Controller) revoke(ctx context.Context, namespace string, definition addOn) error {
	if definition.role == "" {
		return nil
	}
	role, binding := objects(namespace, definition)
	rights := []client.Object{binding}
	if c.ClusterRole == "" {
		rights = append(rights, role)
	}
	var errs []error
	for _, o := range rights {
		key := client.ObjectKeyFromObject(o)
		if err := c.client.Get(ctx, key, o); err != nil {
			if !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("get %T %s: %w", o, key, err))
			}
			continue
		}
		if isMarked(o) {
			errs = append(errs, c.delete(ctx, o))
		}
	}
	return errors.Join(errs...)
}

func (c *Controller) delete(ctx context.Context, o client.Object) error {
	uid := o.GetUID()
	if err := c.client.Delete(ctx, o, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	return nil
}
