package frame

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/rights"
)

// Secrets reads Secrets from watches, one of each name in all namespaces: those that custom resources refer to have the same few names,
// and a cluster may have many others. Secrets of a name that may not be watched are read each time.
type Secrets struct {
	client corev1client.SecretsGetter
	// reviewer reviews what may be watched.
	reviewer rights.Reviewer
	// changed is called with the namespace and the name of a Secret that appears, changes or goes.
	changed func(types.NamespacedName)
	// ctx ends the watches.
	ctx context.Context //nolint:containedctx // of the operator: a watch outlives the reconcile that starts it

	mu      sync.Mutex
	watches map[string]toolscache.SharedIndexInformer
	// kept are the names of Secrets that may be kept.
	kept sets.Set[string]
	// denied are the names that could not be watched, or kept, when they were last requested, and the rules that would permit it.
	denied map[string]string
}

// Verbs for Secrets that users write, and for those that an operator keeps.
var (
	watchVerbs = []string{"list", "watch"}
	keepVerbs  = []string{"get", "list", "watch", "update", "patch", "delete"}
)

// NewSecrets returns Secrets without a watch. Watches end with the context, that of the operator. changed is called with the namespace and
// the name of a Secret that appears, changes or goes.
func NewSecrets(
	ctx context.Context, client corev1client.SecretsGetter, reviewer rights.Reviewer, changed func(types.NamespacedName),
) *Secrets {
	return &Secrets{ctx: ctx, client: client, reviewer: reviewer, changed: changed,
		watches: map[string]toolscache.SharedIndexInformer{}, kept: sets.Set[string]{}, denied: map[string]string{}}
}

// missingRules are those that would permit what could not be watched.
func (s *Secrets) missingRules() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.denied))
}

// Get returns a Secret, or nil if there is none. It waits for the first list of Secrets with that name.
func (s *Secrets) Get(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	informer, err := s.watch(ctx, name, watchVerbs)
	if err != nil {
		return nil, err
	}
	if informer == nil {
		return s.read(ctx, namespace, name)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("list Secrets with the name %s: %w", name, ctx.Err())
	}
	object, found, err := informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil, err
	}
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("what is known as Secret %s/%s is a %T", namespace, name, object)
	}
	return secret, nil
}

// Follow has changes of Secrets with the name noticed, for who keeps them and reads them from the API server. It reports whether that is
// permitted; while it is not, the rule that is missing is reported, until Unfollow.
func (s *Secrets) Follow(ctx context.Context, name string) (permitted bool, err error) {
	informer, err := s.watch(ctx, name, keepVerbs)
	if err != nil || informer == nil {
		return false, err
	}
	return s.mayKeep(ctx, name)
}

// mayKeep reports whether Secrets with the name, which are watched, may be kept. What was permitted once is not reviewed again.
func (s *Secrets) mayKeep(ctx context.Context, name string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept.Has(name) {
		return true, nil
	}
	permitted, err := rights.Watch{GroupVersionKind: secretKind, Name: name}.Permits(ctx, s.reviewer, keepVerbs...)
	if err != nil {
		return false, err
	}
	if permitted {
		s.kept.Insert(name)
		delete(s.denied, name)
	} else {
		s.denied[name] = rights.Rule(secretKind.GroupKind(), "", name, keepVerbs...)
	}
	return permitted, nil
}

// Unfollow says that no Secret with the name is to be kept, so that no rule is missing for it.
func (s *Secrets) Unfollow(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.denied, name)
}

// read reads from the API server. The error says which rule permits to.
func (s *Secrets) read(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret, err := ignoreNotFound(s.client.Secrets(namespace).Get(ctx, name, metav1.GetOptions{}))
	if apiclient.Denied(err) {
		return nil, fmt.Errorf("%w; the rule %s permits it", err, rights.Rule(secretKind.GroupKind(), "", name, "get", "list", "watch"))
	}
	return secret, err
}

var secretKind = corev1.SchemeGroupVersion.WithKind("Secret")

// watch is the watch of a name; nil while it is not permitted. The verbs are those of the rule that is missing then.
func (s *Secrets) watch(ctx context.Context, name string, verbs []string) (toolscache.SharedIndexInformer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if informer, found := s.watches[name]; found {
		return informer, nil
	}
	missing, err := rights.Missing(ctx, s.reviewer, rights.Watch{GroupVersionKind: secretKind, Name: name})
	if err != nil {
		return nil, err
	}
	delete(s.denied, name)
	if len(missing) > 0 {
		s.denied[name] = rights.Rule(secretKind.GroupKind(), "", name, verbs...)
		return nil, nil
	}
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	lists := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return s.client.Secrets(metav1.NamespaceAll).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return s.client.Secrets(metav1.NamespaceAll).Watch(ctx, o)
		},
	}
	informer := toolscache.NewSharedIndexInformer(lists, &corev1.Secret{}, 0, toolscache.Indexers{})
	if err := informer.SetTransform(cache.TransformStripManagedFields()); err != nil {
		return nil, err
	}
	changed := func(object any) {
		if key, err := toolscache.DeletionHandlingObjectToName(object); err == nil {
			s.changed(types.NamespacedName(key))
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed, DeleteFunc: changed, UpdateFunc: func(_, after any) { changed(after) },
	}); err != nil {
		return nil, err
	}
	s.watches[name] = informer
	go informer.RunWithContext(s.ctx) //nolint:contextcheck // the watch goes on when the reconcile has ended
	return informer, nil
}

// ignoreNotFound is nil for objects that do not exist.
func ignoreNotFound[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return object, nil
}
