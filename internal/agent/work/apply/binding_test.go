package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var roleBindings = schema.GroupResource{Group: rbacv1.GroupName, Resource: "rolebindings"}

// bindings is a cluster with one RoleBinding, whose roleRef never changes, and the work a, which names it.
type bindings struct {
	*disputed
	work *workv1.ManifestWork
	amw  *workv1.AppliedManifestWork
	last *workResult

	live             *unstructured.Unstructured
	created, deleted int
	// refuse is what the API server says to requests by their verbs: "try" is a creation that is only tried.
	refuse map[string]error
	// meanwhile is what another client does before the first deletion.
	meanwhile func(live *unstructured.Unstructured)
}

func newBindings(t *testing.T, role string, strategy workv1.UpdateStrategy, owners ...metav1.OwnerReference) *bindings {
	t.Helper()
	b := &bindings{work: &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "work-a", Generation: 1}}, live: bindingTo("view")}
	b.amw = &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, "a"),
		UID: ownerNamed("a").UID}}
	raw, err := json.Marshal(bindingTo(role))
	if err != nil {
		t.Fatal(err)
	}
	b.work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}
	b.work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{UpdateStrategy: &strategy, ResourceIdentifier: workv1.ResourceIdentifier{
		Group: roleBindings.Group, Resource: roleBindings.Resource, Namespace: "default", Name: "ci"}}}
	b.live.SetOwnerReferences(owners)
	b.live.SetLabels(map[string]string{"theirs": "yes"})
	b.live.SetUID("first")
	b.live.SetResourceVersion("1")
	b.disputed = newDisputed(t, b.work)
	b.managed = clientWith(t)
	b.mapper.(*meta.DefaultRESTMapper).Add(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), meta.RESTScopeNamespace)
	b.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("*", roleBindings.Resource, b.serve)
	return b
}

// bindingTo is a RoleBinding that gives a role.
func bindingTo(role string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
		"metadata": map[string]any{"namespace": "default", "name": "ci"},
		"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": role},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": "default", "name": "ci"}},
	}}
}

// serve answers as an API server does.
func (b *bindings) serve(action kubetesting.Action) (bool, runtime.Object, error) {
	verb := action.GetVerb()
	create, isCreate := action.(kubetesting.CreateActionImpl)
	if isCreate && len(create.CreateOptions.DryRun) > 0 {
		verb = "try"
	}
	if err := b.refuse[verb]; err != nil {
		return true, nil, err
	}
	var answer *unstructured.Unstructured
	var err error
	switch action := action.(type) {
	case kubetesting.CreateActionImpl:
		answer, err = b.create(action)
	case kubetesting.UpdateActionImpl:
		answer, err = b.write(action.Object.(*unstructured.Unstructured), len(action.UpdateOptions.DryRun) > 0)
	case kubetesting.PatchActionImpl:
		answer, err = b.patch(action)
	case kubetesting.DeleteActionImpl:
		return true, nil, b.delete(action.DeleteOptions.Preconditions)
	default:
		if b.live == nil {
			return true, nil, apierrors.NewNotFound(roleBindings, "ci")
		}
		answer = b.live.DeepCopy()
	}
	if err != nil {
		return true, nil, err
	}
	return true, answer, nil
}

func (b *bindings) create(action kubetesting.CreateActionImpl) (*unstructured.Unstructured, error) {
	if b.live != nil {
		return nil, apierrors.NewAlreadyExists(roleBindings, "ci")
	}
	created := action.Object.(*unstructured.Unstructured).DeepCopy()
	if len(action.CreateOptions.DryRun) == 0 {
		b.created++
		created.SetUID(types.UID(fmt.Sprint("created-", b.created)))
		created.SetResourceVersion("1")
		b.live = created
	}
	return created.DeepCopy(), nil
}

func (b *bindings) patch(action kubetesting.PatchActionImpl) (*unstructured.Unstructured, error) {
	if action.PatchType != types.ApplyPatchType {
		changed, err := mergePatch(b.live, action.Patch)
		if err != nil {
			return nil, err
		}
		return b.write(changed, false)
	}
	applied := &unstructured.Unstructured{}
	if err := json.Unmarshal(action.Patch, &applied.Object); err != nil {
		return nil, err
	}
	if b.live == nil {
		return b.create(kubetesting.CreateActionImpl{Object: applied, CreateOptions: metav1.CreateOptions{DryRun: action.PatchOptions.DryRun}})
	}
	after := b.live.DeepCopy()
	after.SetOwnerReferences(applied.GetOwnerReferences())
	for _, part := range []string{"roleRef", "subjects"} {
		if value, found := applied.Object[part]; found {
			after.Object[part] = value
		}
	}
	return b.write(after, len(action.PatchOptions.DryRun) > 0)
}

func (b *bindings) write(after *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	if roleOf(after) != roleOf(b.live) {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}, "ci",
			field.ErrorList{field.Invalid(field.NewPath("roleRef"), nil, "field is immutable")})
	}
	if !dryRun {
		b.live = after.DeepCopy()
	}
	return after.DeepCopy(), nil
}

func (b *bindings) delete(only *metav1.Preconditions) error {
	if change := b.meanwhile; change != nil {
		b.meanwhile = nil
		change(b.live)
	}
	switch {
	case only == nil || only.UID == nil || only.ResourceVersion == nil:
		return errors.New("it may be another one by now")
	case *only.UID != b.live.GetUID() || *only.ResourceVersion != b.live.GetResourceVersion():
		return apierrors.NewConflict(roleBindings, "ci", errors.New("modified"))
	}
	b.deleted++
	b.live = nil
	return nil
}

// pass has the work applied.
func (b *bindings) pass(t *testing.T) *manifestResult {
	t.Helper()
	results, _ := b.apply(t.Context(), b.amw, b.work, b.last)
	b.last = &workResult{work: b.work.UID, generation: b.work.Generation, owner: b.amw.UID, results: results}
	return &results[0]
}

// WK-05 WK-06 WK-07 WK-08 WK-11 WK-33: a binding of a work that is to give another role is deleted and made anew. It stays as it is if
// strategy or delete option leave it alone, if no work owns it, if the new one would not be made, and if the old one may not be deleted.
func TestOtherRole(t *testing.T) {
	t.Parallel()
	update := workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeUpdate}
	createOnly := workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly}
	serverSide := func(ignored ...string) workv1.UpdateStrategy {
		config := &workv1.ServerSideApplyConfig{}
		if len(ignored) > 0 {
			config.IgnoreFields = []workv1.IgnoreField{{JSONPaths: ignored}}
		}
		return workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply, ServerSideApply: config}
	}
	orphan := &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	own, others := ownerNamed("a"), ownerNamed("b")
	ofUser := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "users", UID: "users"}
	forbidden := func(verb string) map[string]error {
		return map[string]error{verb: apierrors.NewForbidden(roleBindings, "ci", errors.New("no "+verb+" by the agent"))}
	}
	taken := apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Field: ".roleRef.name",
		Message: `conflict with "argocd"`}}, "1 conflict")
	changed := func(live *unstructured.Unstructured) {
		live.SetResourceVersion("2")
		live.SetAnnotations(map[string]string{"changed": "meanwhile"})
	}
	for name, test := range map[string]struct {
		strategy  workv1.UpdateStrategy
		owners    []metav1.OwnerReference
		option    *workv1.DeleteOption
		refuse    map[string]error
		meanwhile func(*unstructured.Unstructured)
		executor  []string // the verbs of the executor; nil is no executor
		want      string
		fails     string
	}{
		"Update":                            {strategy: update, owners: []metav1.OwnerReference{own}, want: "edit"},
		"Update, of two works":              {strategy: update, owners: []metav1.OwnerReference{others, own}, want: "edit"},
		"Update, of another work":           {strategy: update, owners: []metav1.OwnerReference{others}, want: "edit"},
		"Update, changed meanwhile":         {strategy: update, owners: []metav1.OwnerReference{own}, meanwhile: changed, want: "edit"},
		"ServerSideApply":                   {strategy: serverSide(), owners: []metav1.OwnerReference{own}, want: "edit"},
		"ServerSideApply, of two works":     {strategy: serverSide(), owners: []metav1.OwnerReference{others, own}, want: "edit"},
		"ServerSideApply, changed":          {strategy: serverSide(), owners: []metav1.OwnerReference{own}, meanwhile: changed, want: "edit"},
		"ServerSideApply, other ignored":    {strategy: serverSide(".metadata.labels"), owners: []metav1.OwnerReference{own}, want: "edit"},
		"ServerSideApply, the role ignored": {strategy: serverSide(".roleRef"), owners: []metav1.OwnerReference{own}, want: "view"},
		"ServerSideApply, in conflict": {strategy: serverSide(), owners: []metav1.OwnerReference{own},
			refuse: map[string]error{"patch": taken}, want: "view", fails: "others own fields"},
		"CreateOnly":       {strategy: createOnly, owners: []metav1.OwnerReference{own}, want: "view"},
		"of nobody":        {strategy: update, want: "view", fails: "it is not owned by a work: delete it on the cluster"},
		"of a user":        {strategy: update, owners: []metav1.OwnerReference{ofUser}, want: "view", fails: "it is not owned by a work"},
		"of a user, apply": {strategy: serverSide(), owners: []metav1.OwnerReference{ofUser}, want: "view", fails: "it is not owned by a work"},
		"to be orphaned": {strategy: update, owners: []metav1.OwnerReference{own, others}, option: orphan, want: "view",
			fails: "it is not owned by a work"},
		"not to be made": {strategy: update, owners: []metav1.OwnerReference{own}, refuse: forbidden("try"), want: "view",
			fails: "try to make it anew"},
		"not to be made, apply": {strategy: serverSide(), owners: []metav1.OwnerReference{own}, refuse: forbidden("try"), want: "view",
			fails: "try to make it anew"},
		"not to be deleted": {strategy: update, owners: []metav1.OwnerReference{own}, refuse: forbidden("delete"), want: "view",
			fails: "delete it to make it anew"},
		"not to be deleted, apply": {strategy: serverSide(), owners: []metav1.OwnerReference{own}, refuse: forbidden("delete"), want: "view",
			fails: "delete it to make it anew"},
		"not to be deleted by the executor": {strategy: update, owners: []metav1.OwnerReference{own},
			executor: []string{"get", "create", "update", "patch"}, want: "view", fails: "lacks the verbs [delete]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBindings(t, "edit", test.strategy, test.owners...)
			b.work.Spec.DeleteOption, b.refuse, b.meanwhile = test.option, test.refuse, test.meanwhile
			if test.executor != nil {
				b.executors = checkerAllowing(t, test.executor...)
				b.work.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
					Type:           workv1.ExecutorSubjectTypeServiceAccount,
					ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "default", Name: "deployer"}}}
			}
			o := b.pass(t)
			if test.fails == "" && o.err != nil || test.fails != "" && (o.err == nil || !strings.Contains(o.err.Error(), test.fails)) {
				t.Errorf("it fails with %v, want %q", o.err, test.fails)
			}
			if role := roleOf(b.live).Name; role != test.want {
				t.Errorf("it gives %s, want %s", role, test.want)
			}
			isNew := b.live.GetUID() != "first"
			if isNew != (test.want == "edit") || o.presence != conditions.Present || o.err == nil && o.uid != b.live.GetUID() {
				t.Errorf("the binding is %s, the pass has seen %q: %v", b.live.GetUID(), o.uid, o.presence)
			}
			for _, owner := range test.owners {
				if !slices.Contains(b.live.GetOwnerReferences(), owner) {
					t.Errorf("the owner %s is missing: %+v", owner.Name, b.live.GetOwnerReferences())
				}
			}
			if test.strategy.Type == workv1.UpdateStrategyTypeUpdate && b.live.GetLabels()["theirs"] != "yes" {
				t.Errorf("what others have set is gone: %v", b.live.GetLabels())
			}
			if test.meanwhile != nil && test.strategy.Type == workv1.UpdateStrategyTypeUpdate && b.live.GetAnnotations()["changed"] == "" {
				t.Error("what others have set meanwhile is gone")
			}
		})
	}
}

// WK-05 WK-07 WK-20: a binding whose deletion waits for others is made anew when it has gone. Until then, the manifest says what is waited
// for.
func TestOtherRoleWaitsForFinalizer(t *testing.T) {
	t.Parallel()
	for _, strategy := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			b := newBindings(t, "edit", workv1.UpdateStrategy{Type: strategy}, ownerNamed("a"))
			kept := b.live.DeepCopy()
			kept.SetFinalizers([]string{"example.com/audit"})
			kept.SetDeletionTimestamp(new(metav1.Now()))
			b.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("delete", roleBindings.Resource,
				func(kubetesting.Action) (bool, runtime.Object, error) {
					b.live = kept
					return true, nil, nil
				})
			if o := b.pass(t); o.err == nil || !strings.Contains(o.err.Error(), "is applied again when it has gone") {
				t.Errorf("it fails with %v", o.err)
			}
			b.live = nil
			if o := b.pass(t); o.err != nil || roleOf(b.live).Name != "edit" {
				t.Errorf("it gives %s: %v", roleOf(b.live).Name, o.err)
			}
		})
	}
}

// WK-17: who makes the binding again and again with another role disputes the role: repairs are held back, and the manifest stays applied.
func TestDisputedRole(t *testing.T) {
	t.Parallel()
	for _, strategy := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			b := newBindings(t, "view", workv1.UpdateStrategy{Type: strategy}, ownerNamed("a"))
			o := b.pass(t)
			for range repairsAtOnce + 3 {
				rival := b.live.DeepCopy()
				rival.Object["roleRef"] = bindingTo("edit").Object["roleRef"]
				b.live = rival
				o = b.pass(t)
				if o.err != nil {
					t.Fatal(o.err)
				}
			}
			if b.deleted != repairsAtOnce {
				t.Errorf("the binding was made anew %d times, want %d", b.deleted, repairsAtOnce)
			}
			if o.dispute == nil || !strings.Contains(o.dispute.String(), "roleRef.name") {
				t.Errorf("the dispute is about %v", o.dispute)
			}
		})
	}
}

// W12: a dry run shows the other role, and leaves the binding.
func TestDryRunOfOtherRole(t *testing.T) {
	t.Parallel()
	for _, strategy := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply} {
		for reason, refused := range map[string]error{
			fleet.ReasonWouldChange: nil, fleet.ReasonWouldFail: apierrors.NewForbidden(roleBindings, "ci", errors.New("no")),
		} {
			t.Run(string(strategy)+", "+reason, func(t *testing.T) {
				t.Parallel()
				b := newBindings(t, "edit", workv1.UpdateStrategy{Type: strategy}, ownerNamed("a"))
				b.refuse = map[string]error{"try": refused}
				_, previews := b.preview(t.Context(), b.amw, b.work, nil)
				if p := previews[0]; p.Reason != reason || refused == nil && !strings.Contains(p.Message, `roleRef.name: "view" -> "edit"`) {
					t.Errorf("it says %s: %s", p.Reason, p.Message)
				}
				if roleOf(b.live).Name != "view" || b.deleted > 0 {
					t.Errorf("it gives %s", roleOf(b.live).Name)
				}
			})
		}
	}
}
