package executor

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	fakeauthorization "k8s.io/client-go/kubernetes/typed/authorization/v1/fake"
	"k8s.io/client-go/rest"
	clientgotesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	aboutv1alpha1 "github.com/capstan-io/capstan/api/about/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	multiclusterv1alpha2 "github.com/capstan-io/capstan/api/multicluster/v1alpha2"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	proxyv1alpha1 "github.com/capstan-io/capstan/api/proxy/v1alpha1"
	rbacv1alpha1 "github.com/capstan-io/capstan/api/rbac/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

var deployer = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
	Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "ns",
		Name: "deployer"},
}}

// authorizer answers reviews.
type authorizer struct {
	*Checker
	clock *clocktesting.FakeClock

	mu       sync.Mutex
	allowed  map[string]bool // by verb and name, which is empty for all names
	err      error
	reviewed int
}

func newAuthorizer(allowed ...string) *authorizer {
	a := &authorizer{clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), allowed: map[string]bool{}}
	for _, right := range allowed {
		a.allowed[right] = true
	}
	fake := &clientgotesting.Fake{}
	fake.AddReactor("create", "subjectaccessreviews", func(action clientgotesting.Action) (bool, runtime.Object, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.reviewed++
		review := action.(clientgotesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		of := review.Spec.ResourceAttributes
		review.Status.Allowed = a.allowed[strings.TrimSpace(of.Verb+" "+of.Name)]
		return true, review, a.err
	})
	client := &fakeauthorization.FakeAuthorizationV1{Fake: fake}
	a.Checker = &Checker{reviews: client.SubjectAccessReviews(), clock: a.clock, answers: map[reviewKey]answer{}}
	return a
}

func (a *authorizer) check(t *testing.T, name string, readOnly bool) (Decision, error) {
	t.Helper()
	return a.Check(t.Context(), deployer, Object{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"),
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}, Owned: true, ReadOnly: readOnly})
}

// WK-33 WK-34: a verdict holds until the first of the answers that it rests on expires, and not a moment longer.
func TestVerdictHolds(t *testing.T) {
	t.Parallel()
	a := newAuthorizer("get", "create", "update", "patch", "delete")
	start := a.clock.Now()
	if v, err := a.check(t, "a", true); err != nil || !v.MayGet || !v.Until.Equal(start.Add(remembered)) || a.reviewed != 1 {
		t.Fatalf("%+v, %v after %d reviews", v, err, a.reviewed)
	}
	a.clock.Step(remembered / 2)
	if v, err := a.check(t, "b", false); err != nil || !v.Until.Equal(start.Add(remembered)) || a.reviewed != 5 {
		t.Errorf("%+v, %v after %d reviews", v, err, a.reviewed)
	}
	a.clock.SetTime(start.Add(remembered - 1))
	a.allowed = nil
	if v, err := a.check(t, "a", true); err != nil || !v.MayGet {
		t.Errorf("%+v, %v", v, err)
	}
	a.clock.Step(1)
	if v, err := a.check(t, "a", true); !IsRefusal(err) || v.MayGet {
		t.Errorf("after the answer has expired: %+v, %v", v, err)
	}
}

// WK-33: what is missing is named, and so is what may be read all the same. Rights that are granted count at once.
func TestRefusal(t *testing.T) {
	t.Parallel()
	a := newAuthorizer("get a", "create")
	v, err := a.check(t, "a", false)
	if !IsRefusal(err) || !v.MayGet || !strings.Contains(err.Error(), `lacks the verbs [update patch delete] on resource "configmaps"`) {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err = a.check(t, "b", false); !IsRefusal(err) || v.MayGet {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err = a.check(t, "a", true); err != nil || !v.MayGet {
		t.Errorf("read only: %+v, %v", v, err)
	}
	for _, verb := range []string{"update a", "patch a", "delete a"} {
		a.allowed[verb] = true
	}
	if _, err = a.check(t, "a", false); err != nil {
		t.Errorf("granted: %v", err)
	}
}

// An authorizer that does not answer has not refused, and is tried again soon.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	a := newAuthorizer()
	a.err = errors.New("broken")
	if v, err := a.check(t, "a", false); err == nil || IsRefusal(err) || v.MayGet || !v.Until.Equal(a.clock.Now().Add(unanswered)) {
		t.Errorf("%+v, %v", v, err)
	}
	a.err, a.allowed["get"] = nil, true
	if _, err := a.check(t, "a", true); err != nil {
		t.Errorf("the failure was remembered: %v", err)
	}
	if v, err := a.Check(t.Context(), nil, Object{}); err != nil || !v.MayGet || !v.Until.IsZero() {
		t.Errorf("no executor: %+v, %v", v, err)
	}
}

// WK-33: only an API server that objects to the rights which a role gives away has refused. A quota or a namespace that goes says nothing
// about them, whatever a role has for rules.
func TestEscalation(t *testing.T) {
	t.Parallel()
	roles := rbacv1.SchemeGroupVersion.WithResource("roles")
	forbidden := func(text string) error { return apierrors.NewForbidden(roles.GroupResource(), "a", errors.New(text)) }
	terminating := apierrors.NewForbidden(roles.GroupResource(), "a",
		errors.New("unable to create new content in namespace ns because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		answer         error
		fails, refused bool
	}{
		"fine":             {},
		"there already":    {answer: apierrors.NewAlreadyExists(roles.GroupResource(), "a")},
		"escalation":       {forbidden(`user "x" is attempting to grant RBAC permissions not currently held`), true, true},
		"no impersonation": {forbidden(`User "agent" cannot impersonate resource "serviceaccounts"`), true, true},
		"quota in a rule": {forbidden(`user "x" is attempting to grant RBAC permissions not currently held: {Resources:["a is forbidden: exceeded quota: "]}`),
			true, true},
		"quota": {answer: forbidden("exceeded quota: few, requested: count/roles.rbac.authorization.k8s.io=1, used: 1, limited: 1"),
			fails: true},
		"namespace goes": {answer: terminating, fails: true},
		"broken":         {answer: apierrors.NewInternalError(errors.New("broken")), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthorizer("get", "create", "update", "patch", "delete")
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answerTrial(w, r, test.answer)
			}))
			t.Cleanup(server.Close)
			a.config = &rest.Config{Host: server.URL}
			role := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": map[string]any{"namespace": "ns", "name": "a"},
			}}
			_, err := a.Check(t.Context(), deployer,
				Object{GroupVersionResource: roles, NamespacedName: types.NamespacedName{Namespace: "ns", Name: "a"}, Content: role})
			if (err != nil) != test.fails || IsRefusal(err) != test.refused {
				t.Errorf("refused %t: %v", IsRefusal(err), err)
			}
		})
	}
}

// WK-33: what a write makes of an existing object is checked as a whole, as it can be created.
func TestEscalationByResult(t *testing.T) {
	t.Parallel()
	clusterRoles := rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		role := &unstructured.Unstructured{}
		if err := json.NewDecoder(r.Body).Decode(&role.Object); err != nil || role.GetResourceVersion() != "" ||
			len(role.GetManagedFields()) > 0 || len(role.GetOwnerReferences()) > 0 || role.GetLabels()["a"] != "b" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		answer := apierrors.NewAlreadyExists(clusterRoles.GroupResource(), role.GetName()).ErrStatus
		if rules, _, _ := unstructured.NestedSlice(role.Object, "rules"); len(rules) > 0 {
			answer = apierrors.NewForbidden(clusterRoles.GroupResource(), role.GetName(), errors.New("attempting to grant")).ErrStatus
		}
		answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		w.WriteHeader(int(answer.Code))
		_ = json.NewEncoder(w).Encode(&answer)
	}))
	t.Cleanup(server.Close)
	a := newAuthorizer()
	a.config = &rest.Config{Host: server.URL}
	roleWith := func(rules ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules,
			"metadata": map[string]any{"name": "strong", "labels": map[string]any{"a": "b"}, "resourceVersion": "7", "uid": "1",
				"managedFields":   []any{map[string]any{"manager": "user"}},
				"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "2"}}},
		}}
	}
	strong := Object{GroupVersionResource: clusterRoles, NamespacedName: types.NamespacedName{Name: "strong"}}
	check := a.ResultCheck(deployer, strong)
	if err := check(t.Context(), roleWith()); err != nil {
		t.Errorf("without rules: %v", err)
	}
	err := check(t.Context(), roleWith(map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"}}))
	if !IsRefusal(err) {
		t.Errorf("with rules: %v", err)
	}
	configMap := Object{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps")}
	if a.ResultCheck(nil, strong) != nil || a.ResultCheck(deployer, configMap) != nil {
		t.Error("there is something to check without an executor, or of what grants nothing")
	}
}

// answerTrial answers what an agent tries as the account as an API server does: with an error, or with the object. What it tries is a dry
// run, and without a group: with one, the agent would need the right to impersonate groups.
func answerTrial(w http.ResponseWriter, r *http.Request, refusal error) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("dryRun") != "All" || r.Header.Get("Impersonate-User") != "system:serviceaccount:ns:deployer" ||
		len(r.Header.Values("Impersonate-Group")) > 0 {
		w.WriteHeader(http.StatusTeapot)
	}
	if status := apierrors.APIStatus(nil); errors.As(refusal, &status) {
		answer := status.Status()
		answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		w.WriteHeader(int(answer.Code))
		_ = json.NewEncoder(w).Encode(&answer)
		return
	}
	_, _ = io.Copy(w, r.Body)
}

// WK-33: what admission and the API server check on the requester, they check on the executor: of what is made, and of what an object that
// exists becomes. What is made is tried with its name, which rules may be about, where the API server makes such an object by apply. A
// webhook that cannot be called in a dry run is no refusal, and nothing is written all the same.
func TestRequesterIsChecked(t *testing.T) {
	t.Parallel()
	works := workv1.GroupVersion.WithResource("manifestworks")
	forbidden := apierrors.NewForbidden(works.GroupResource(), "a", errors.New("no"))
	conflict := apierrors.NewConflict(works.GroupResource(), "a", errors.New("modified"))
	noDryRun := apierrors.NewBadRequest(`admission webhook "mine.example.com" does not support dry run`)
	notFound := apierrors.NewNotFound(works.GroupResource(), "a")
	exists := apierrors.NewAlreadyExists(works.GroupResource(), "a")
	invalid := apierrors.NewInvalid(workv1.GroupVersion.WithKind("ManifestWork").GroupKind(), "a",
		field.ErrorList{field.Required(field.NewPath("spec"), "it is missing")})
	undeclared := apierrors.NewInternalError(errors.New("failed to create typed patch object: .spec.x: field not declared in schema"))
	noPatches := apierrors.NewMethodNotSupported(works.GroupResource(), "patch")
	noApplies := apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", works.GroupResource(), "a", "", 0, true)
	broken := apierrors.NewInternalError(errors.New("failed calling webhook"))
	const all = "/apis/work.open-cluster-management.io/v1/namespaces/ns/manifestworks"
	byName, change := []string{"PATCH " + all + "/a"}, []string{"PUT " + all + "/a"}
	byNameOrPost := []string{byName[0], "POST " + all}
	for name, test := range map[string]struct {
		version        string
		answers        []error
		requests       []string
		fails, refused bool
		message        string
	}{
		"it may make it":       {"", []error{nil}, byName, false, false, ""},
		"it may change it":     {"7", []error{nil}, change, false, false, ""},
		"it may not make it":   {"", []error{forbidden}, byName, true, true, "could not do so itself"},
		"it may not change it": {"7", []error{forbidden}, change, true, true, "could not do so itself"},
		"its executor":         {"7", []error{apierrors.NewBadRequest("spec.executor: no")}, change, true, false, "spec.executor: no"},
		"made by POST alone":   {"", []error{notFound, nil}, byNameOrPost, false, false, ""},
		"not even by POST":     {"", []error{notFound, forbidden}, byNameOrPost, true, true, "could not do so itself"},
		"it exists":            {"", []error{notFound, exists}, byNameOrPost, false, false, ""},
		"an undeclared field":  {"", []error{undeclared, nil}, byNameOrPost, false, false, ""},
		"refused by POST":      {"", []error{undeclared, forbidden}, byNameOrPost, true, true, "could not do so itself"},
		"no patches":           {"", []error{noPatches, nil}, byNameOrPost, false, false, ""},
		"no apply patches":     {"", []error{noApplies, nil}, byNameOrPost, false, false, ""},
		"a broken webhook":     {"", []error{broken, broken}, byNameOrPost, true, false, "failed calling webhook"},
		"it is invalid":        {"", []error{invalid}, byName, true, false, "it is missing"},
		"changed meanwhile":    {"7", []error{conflict}, change, true, false, "modified"},
		"not in a dry run":     {"", []error{noDryRun}, byName, true, false, "sideEffects None or NoneOnDryRun"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := make(chan string, 3)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answered := len(requests)
				requests <- r.Method + " " + r.URL.Path
				var answer error
				if answered < len(test.answers) {
					answer = test.answers[answered]
				}
				answerTrial(w, r, answer)
			}))
			t.Cleanup(server.Close)
			a := newAuthorizer()
			a.config = &rest.Config{Host: server.URL}
			work := &unstructured.Unstructured{Object: map[string]any{"apiVersion": workv1.GroupVersion.String(), "kind": "ManifestWork",
				"metadata": map[string]any{"namespace": "ns", "name": "a"}}}
			work.SetResourceVersion(test.version)
			check := a.ResultCheck(deployer, Object{GroupVersionResource: works, NamespacedName: types.NamespacedName{Namespace: "ns", Name: "a"}})
			err := check(t.Context(), work)
			close(requests)
			var made []string
			for request := range requests {
				made = append(made, request)
			}
			if !slices.Equal(made, test.requests) {
				t.Errorf("requests %q, want %q", made, test.requests)
			}
			if (err != nil) != test.fails || IsRefusal(err) != test.refused || err != nil && !strings.Contains(err.Error(), test.message) {
				t.Errorf("refused %t: %v", IsRefusal(err), err)
			}
		})
	}
}

// WK-33: of which groups the requester is checked: all those of this API are among them.
func TestGroupsOfRequesters(t *testing.T) {
	t.Parallel()
	for _, group := range []string{aboutv1alpha1.GroupVersion.Group, addonv1beta1.GroupVersion.Group, appsv1beta1.GroupVersion.Group,
		authenticationv1beta1.GroupVersion.Group, clusterv1.GroupVersion.Group, gatewayv1alpha1.GroupVersion.Group,
		multiclusterv1alpha2.GroupVersion.Group, operatorv1.GroupVersion.Group, proxyv1alpha1.GroupVersion.Group,
		rbacv1alpha1.GroupVersion.Group, workv1.GroupVersion.Group, "admissionregistration.k8s.io", "certificates.k8s.io",
		"authorization.openshift.io"} {
		if !checksRequesters(group) {
			t.Errorf("%s is left out", group)
		}
	}
	for _, group := range []string{"", "apps", "batch", "open-cluster-management.io.example.com"} {
		if checksRequesters(group) {
			t.Errorf("%q is not", group)
		}
	}
}
