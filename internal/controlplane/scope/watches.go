package scope

import (
	"cmp"
	"context"
	"crypto/x509"
	"net/http"
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/lasting"
	"github.com/capstan-io/capstan/internal/reach/token"
)

// Watches are those that are open. A watch is authorized when it starts, and may then go on for an hour; these end as soon as the user
// who has them open has lost the right to them. So a denied cluster learns of no work that is made after that, and what an add-on of it
// may see ends with the rights of the add-on. The identities of add-ons have whatever rights are given to them, through roles of any name
// or label: what ends a watch is that one of its subjects is bound to what has changed, for everybody alike. They also end with the token
// or certificate that they were opened with, with the service account and, of who impersonates the user, with the right to that. The cause
// of that end is the answer to a request that has none yet.
type Watches struct {
	authorizer  authorizer.UnconditionalAuthorizer
	credentials *Credentials
	bindings    bindings

	mu sync.Mutex
	// open are the watches by their subjects.
	open map[subject]map[*watch]struct{}
}

type watch struct {
	ctx context.Context // that of the request
	// rights are what it needs for as long as it is open. More come while it is.
	rights []authorizer.Attributes
	// sender is who has it open, and certificate what that has shown, nil if that was something else.
	sender      user.Info
	certificate *x509.Certificate
	// impersonated is nil unless the sender has it open as somebody else.
	impersonated *impersonated
	end          context.CancelCauseFunc
}

// subject is a user or a group, or a cluster that users act for.
type subject struct{ kind, name string }

// clusterKind is the kind of subjects that are clusters. RBAC has none of it.
const clusterKind = "Cluster"

// NewWatches returns Watches that the authorizer checks, when roles change, when cutOff has another cluster and when
// certificates of one are no longer accepted.
func NewWatches(a authorizer.UnconditionalAuthorizer, cutOff *CutOff, credentials *Credentials) *Watches {
	w := &Watches{authorizer: a, credentials: credentials, open: map[subject]map[*watch]struct{}{}}
	cutOff.watches, credentials.watches = w, w
	return w
}

// Handler passes requests on, and ends long-running ones of those who have lost their rights.
func (w *Watches) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		info, _ := request.RequestInfoFrom(r.Context())
		who, _ := request.UserFrom(r.Context())
		if info == nil || who == nil || !isLongRunning(info) {
			next.ServeHTTP(rw, r)
			return
		}
		rights, err := lasting.OnHub(r)
		if err != nil {
			next.ServeHTTP(rw, r)
			return
		}
		one, sent, subjects := &watch{rights: rights, sender: who}, senderOf(r.Context()), subjectsOf(who)
		if by := sent.impersonator(); by != nil {
			one.sender, one.impersonated = by, &impersonated{by: by, as: sent.as, about: withVerbs(info, rights)}
			subjects = append(subjects, subjectsOf(by)...)
		}
		one.certificate = certificateOf(r, one.sender)
		ctx, end := withinCredential(r.Context(), one.sender, sent.tokens, one.certificate)
		defer end(nil)
		one.ctx, one.end = ctx, end
		defer w.add(subjects, one)()
		follow := func(right authorizer.Attributes) { w.follow(one, right) }
		next.ServeHTTP(rw, r.WithContext(lasting.WithFollower(ctx, follow)))
	})
}

// isLongRunning reports whether a request is a watch, or a tunnel of an agent, or goes through a proxy or a forwarded port, which may be a
// watch of the cluster or a stream that lasts as long. Streams to other processes of the hub are none: nobody takes rights from these.
func isLongRunning(info *request.RequestInfo) bool {
	return info.Verb == "watch" ||
		slices.Contains([]string{fleet.SubresourceProxy, fleet.SubresourcePortForward, fleet.SubresourceTunnel}, info.Subresource)
}

var (
	errCertificateExpired = apierrors.NewUnauthorized("the certificate has expired")
	errAccountGone        = apierrors.NewUnauthorized("the service account has been deleted")
)

// withinCredential ends with the certificate that a request was sent with, or with the first of the tokens. The token of somebody whom the
// hub does not know is not for the hub.
func withinCredential(ctx context.Context, who user.Info, tokens []string, certificate *x509.Certificate) (context.Context,
	context.CancelCauseFunc) {
	ends, expired := token.Expiry(tokens...), token.ErrExpired
	switch {
	case certificate != nil:
		ends, expired = certificate.NotAfter, errCertificateExpired
	case ends.IsZero(), who.GetName() == user.Anonymous:
		return context.WithCancelCause(ctx)
	}
	valid, stop := context.WithDeadlineCause(ctx, ends, expired)
	within, end := context.WithCancelCause(valid)
	return within, func(why error) {
		end(why)
		stop()
	}
}

// subjectsOf are those by which a user may have rights, and the clusters that the user acts for.
func subjectsOf(who user.Info) []subject {
	subjects := []subject{{rbacv1.UserKind, who.GetName()}}
	for _, group := range who.GetGroups() {
		subjects = append(subjects, subject{rbacv1.GroupKind, group})
	}
	for _, cluster := range fleet.ClustersBehind(who.GetName(), who.GetGroups()) {
		subjects = append(subjects, subject{clusterKind, cluster})
	}
	return subjects
}

// add keeps a watch until the returned function is called. The right to it may have gone since it was authorized.
func (w *Watches) add(subjects []subject, added *watch) (remove func()) {
	w.mu.Lock()
	for _, s := range subjects {
		if w.open[s] == nil {
			w.open[s] = map[*watch]struct{}{}
		}
		w.open[s][added] = struct{}{}
	}
	w.mu.Unlock()
	w.check(added)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, s := range subjects {
			if delete(w.open[s], added); len(w.open[s]) == 0 {
				delete(w.open, s)
			}
		}
	}
}

// follow has a watch end with another right of its user, too, which may have gone since it was authorized.
func (w *Watches) follow(one *watch, right authorizer.Attributes) {
	w.mu.Lock()
	one.rights = append(one.rights, right)
	w.mu.Unlock()
	w.check(one)
}

// check ends a watch without a right or a credential that holds.
func (w *Watches) check(one *watch) {
	w.mu.Lock()
	rights := one.rights
	w.mu.Unlock()
	for _, right := range rights {
		if decision, reason, _ := w.authorizer.Authorize(one.ctx, right); decision != authorizer.DecisionAllow {
			one.end(responsewriters.ForbiddenStatusError(right, cmp.Or(reason, "the right to this request has been lost since it began")))
		}
	}
	if err := w.credentials.check(one.ctx, one.sender, one.certificate); err != nil {
		one.end(apierrors.NewUnauthorized(err.Error()))
	}
	if one.impersonated == nil {
		return
	}
	if err := one.impersonated.check(one.ctx, w.authorizer); err != nil {
		one.end(err)
	}
}

// checkFor checks the watches of clients that act for a cluster. Each cluster that joins causes it.
func (w *Watches) checkFor(cluster string) { w.checkAll([]subject{{clusterKind, cluster}}) }

// endAll ends the watches of a subject.
func (w *Watches) endAll(of subject, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.open[of] {
		one.end(why)
	}
}

// checkAll checks the watches of these subjects.
func (w *Watches) checkAll(subjects []subject) {
	affected := map[*watch]struct{}{}
	w.mu.Lock()
	for _, s := range subjects {
		for one := range w.open[s] {
			affected[one] = struct{}{}
		}
	}
	w.mu.Unlock()
	for one := range affected {
		w.check(one)
	}
}

// Follow checks the watches of the subjects of a role or binding whenever that changes or goes. The informers have to be those that the
// authorizer decides by.
func (w *Watches) Follow(shared informers.SharedInformerFactory) error {
	rbac := shared.Rbac().V1()
	global, local := rbac.ClusterRoleBindings().Informer(), rbac.RoleBindings().Informer()
	for _, informer := range []cache.SharedIndexInformer{global, local} {
		if err := informer.AddIndexers(cache.Indexers{byRole: rolesOf}); err != nil {
			return err
		}
	}
	w.bindings = bindings{global.GetIndexer(), local.GetIndexer()}
	for _, informer := range []cache.SharedIndexInformer{
		rbac.ClusterRoles().Informer(), rbac.ClusterRoleBindings().Informer(), rbac.Roles().Informer(), rbac.RoleBindings().Informer(),
	} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(before, after any) {
				if versionOf(before) != versionOf(after) {
					w.changed(before)
				}
			},
			DeleteFunc: func(last any) {
				if unknown, ok := last.(cache.DeletedFinalStateUnknown); ok {
					last = unknown.Obj
				}
				w.changed(last)
			},
		})
		if err != nil {
			return err
		}
	}
	return w.followAccounts(shared.Core().V1().ServiceAccounts().Informer())
}

// followAccounts ends the watches of service accounts that go: their tokens are void, also where there is another one of the name by now.
func (w *Watches) followAccounts(informer cache.SharedIndexInformer) error {
	gone := func(object any) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		if account, err := meta.Accessor(object); err == nil {
			w.endAll(subject{rbacv1.UserKind, serviceaccount.MakeUsername(account.GetNamespace(), account.GetName())}, errAccountGone)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if uidOf(before) != uidOf(after) {
				gone(before)
			}
		},
		DeleteFunc: gone,
	})
	return err
}

func uidOf(object any) types.UID {
	m, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return m.GetUID()
}

func versionOf(object any) string {
	m, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return m.GetResourceVersion()
}

// changed checks the watches of those whom a role or binding gave a right.
func (w *Watches) changed(before any) {
	subjects, err := w.bindings.subjectsOf(before)
	if err != nil {
		klog.Background().Error(err, "Watches of those whose rights change go on until they end by themselves")
		return
	}
	w.checkAll(subjects)
}

// bindings say for whom a role is. A hub has some for each cluster, so they are found by the index byRole.
type bindings struct{ global, local cache.Indexer }

// byRole is the index of bindings by the role that they refer to.
const byRole = "role"

// rolesOf returns the role that a binding refers to.
func rolesOf(object any) ([]string, error) {
	switch o := object.(type) {
	case *rbacv1.ClusterRoleBinding:
		return []string{keyOf(o.RoleRef.Kind, "", o.RoleRef.Name)}, nil
	case *rbacv1.RoleBinding:
		return []string{keyOf(o.RoleRef.Kind, o.Namespace, o.RoleRef.Name)}, nil
	}
	return nil, nil
}

// keyOf is that of a role in the index. A ClusterRole is the same one in all namespaces.
func keyOf(kind, namespace, name string) string {
	if kind == "ClusterRole" {
		namespace = ""
	}
	return kind + " " + namespace + "/" + name
}

// subjectsOf are those whom a role or binding gives, or gave, a right.
func (b bindings) subjectsOf(object any) ([]subject, error) {
	switch o := object.(type) {
	case *rbacv1.ClusterRoleBinding:
		return subjectsIn("", o.Subjects), nil
	case *rbacv1.RoleBinding:
		return subjectsIn(o.Namespace, o.Subjects), nil
	case *rbacv1.Role:
		return b.boundTo(keyOf("Role", o.Namespace, o.Name))
	case *rbacv1.ClusterRole:
		return b.boundTo(keyOf("ClusterRole", "", o.Name))
	}
	return nil, nil
}

// boundTo are the subjects of all bindings that refer to a role.
func (b bindings) boundTo(role string) ([]subject, error) {
	var subjects []subject
	for _, indexer := range []cache.Indexer{b.local, b.global} {
		found, err := indexer.ByIndex(byRole, role)
		if err != nil {
			return nil, err
		}
		for _, object := range found {
			switch o := object.(type) {
			case *rbacv1.ClusterRoleBinding:
				subjects = append(subjects, subjectsIn("", o.Subjects)...)
			case *rbacv1.RoleBinding:
				subjects = append(subjects, subjectsIn(o.Namespace, o.Subjects)...)
			}
		}
	}
	return subjects, nil
}

// subjectsIn are the subjects of a binding in a namespace, which is where service accounts are that it names without one.
func subjectsIn(namespace string, bound []rbacv1.Subject) []subject {
	subjects := make([]subject, 0, len(bound))
	for _, s := range bound {
		if s.Kind != rbacv1.ServiceAccountKind {
			subjects = append(subjects, subject{s.Kind, s.Name})
			continue
		}
		subjects = append(subjects, subject{rbacv1.UserKind, serviceaccount.MakeUsername(cmp.Or(s.Namespace, namespace), s.Name)})
	}
	return subjects
}
