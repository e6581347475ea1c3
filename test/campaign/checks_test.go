package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// A controller that deletes and makes again what it finds after a crash leaves the same behind as one that leaves it alone: it is seen by
// its deletions.
func TestRecreatedObjectsAreSeen(t *testing.T) {
	t.Parallel()
	const work, absent = "/apis/work.open-cluster-management.io/v1/namespaces/c1/manifestworks/web", "/api/v1/namespaces/absent"
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == absent {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer hub.Close()
	h := newHistory(plan{})
	h.enter(scenario[0].name)
	l := &life{history: h}
	l.ctx, l.end = context.WithCancel(t.Context())
	defer l.end()
	controller := &http.Client{Transport: transport{l, http.DefaultTransport}}
	for _, write := range [][2]string{{http.MethodDelete, absent}, {http.MethodDelete, work}, {http.MethodPost, work}} {
		request, err := http.NewRequestWithContext(t.Context(), write[0], hub.URL+write[1], nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := controller.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // it is empty
	}
	const key = "manifestworks.work.open-cluster-management.io/c1/web"
	end := store{key: "", "namespaces//absent": ""}
	for what, test := range map[string]struct {
		end           store
		withoutFaults []string
		want          []string
	}{
		"made again":                     {end: end, want: []string{key}},
		"made again without faults, too": {end: end, withoutFaults: []string{key}},
		"gone in the end":                {},
	} {
		if got := recreated(test.end, h.deletions(scenario[:1]), test.withoutFaults); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q is seen, want %q", what, got, test.want)
		}
	}
}

// A controller that takes a manifest out of a work and puts it back leaves the same behind as one that leaves it alone: it is seen by the
// versions between, in whichever order the answers come.
func TestManifestsThatArePutBackAreSeen(t *testing.T) {
	t.Parallel()
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, r.Body)
	}))
	defer hub.Close()
	const path = "/apis/work.open-cluster-management.io/v1/namespaces/c1/manifestworks/web"
	const key = "manifestworks.work.open-cluster-management.io/c1/web"
	const one = key + ": ConfigMap default/a"
	work := func(uid, version string, manifests ...string) string {
		var listed []string
		for _, m := range manifests {
			gv, name, _ := strings.Cut(m, " ")
			listed = append(listed, fmt.Sprintf(`{"apiVersion":%q,"kind":"ConfigMap","metadata":{"namespace":"default","name":%q}}`, gv, name))
		}
		return fmt.Sprintf(`{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"namespace":"c1","name":"web",`+
			`"uid":%q,"resourceVersion":%q},"spec":{"workload":{"manifests":[%s]}}}`, uid, version, strings.Join(listed, ","))
	}
	for what, test := range map[string]struct {
		answers       []string
		gone          bool
		withoutFaults []string
		want          []string
	}{
		"left alone":         {answers: []string{work("1", "1", "v1 a"), work("1", "2", "v1 a", "v1 b")}},
		"taken out":          {answers: []string{work("1", "1", "v1 a", "v1 b"), work("1", "2", "v1 b")}},
		"in another version": {answers: []string{work("1", "1", "v1 a"), work("1", "2", "v2 a")}},
		"put back":           {answers: []string{work("1", "1", "v1 a"), work("1", "2"), work("1", "3", "v1 a")}, want: []string{one}},
		"put back, an answer is late": {
			answers: []string{work("1", "1", "v1 a"), work("1", "9"), work("1", "2", "v1 a"), work("1", "10", "v1 a")},
			want:    []string{one},
		},
		"put back without faults, too": {answers: []string{work("1", "1", "v1 a"), work("1", "2"), work("1", "3", "v1 a")},
			withoutFaults: []string{one}},
		"put back, and deleted": {answers: []string{work("1", "1", "v1 a"), work("1", "2"), work("1", "3", "v1 a")}, gone: true},
		"another work":          {answers: []string{work("1", "1", "v1 a"), work("2", "2"), work("2", "3", "v1 a")}},
	} {
		h := newHistory(plan{})
		h.enter(scenario[0].name)
		controller := transport{&life{history: h, ctx: t.Context()}, http.DefaultTransport}
		for _, answer := range test.answers {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, hub.URL+path, strings.NewReader(answer))
			if err != nil {
				t.Fatal(err)
			}
			response, err := controller.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close() // it has been read
		}
		end := store{key: ""}
		if test.gone {
			end = store{}
		}
		got := recreated(h.listed(end), h.drops(scenario[:1]), test.withoutFaults)
		if !slices.Equal(got, test.want) || h.failure() != nil {
			t.Errorf("%s: %q is seen, %v; want %q", what, got, h.failure(), test.want)
		}
	}
}

// What users, agents and controllers write never says that less was observed than an earlier version of the object, in whichever order the
// answers come. Whoever writes gets the answer all the same.
func TestObservedGenerationsNeverGoBack(t *testing.T) {
	t.Parallel()
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, r.Body)
	}))
	defer hub.Close()
	object := func(uid, version, status string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Thing","metadata":{"namespace":"c1","name":"a","uid":%q,"resourceVersion":%q},`+
			`"status":%s}`, uid, version, status)
	}
	const path, back = "/apis/example.com/v1/namespaces/c1/things/a/status", "the observedGeneration of %s goes back from 2 to 1"
	status := func(generation int) string { return fmt.Sprintf(`{"observedGeneration":%d}`, generation) }
	condition := func(kind string, generation int) string {
		return fmt.Sprintf(`{"conditions":[{"type":%q,"observedGeneration":%d}]}`, kind, generation)
	}
	for what, test := range map[string]struct {
		answers []string
		want    string
	}{
		"forth": {answers: []string{object("1", "9", status(1)), object("1", "10", status(2)), object("1", "11", status(2))}},
		"back":  {answers: []string{object("1", "9", status(2)), object("1", "10", status(1))}, want: "the status"},
		"a condition": {answers: []string{object("1", "9", condition("Ready", 2)), object("1", "10", condition("Ready", 1))},
			want: "condition Ready"},
		"forth, the last answer first": {answers: []string{object("1", "10", status(2)), object("1", "9", status(1))}},
		"back, the last answer first":  {answers: []string{object("1", "10", status(1)), object("1", "9", status(2))}, want: "the status"},
		"another condition":            {answers: []string{object("1", "9", condition("Ready", 2)), object("1", "10", condition("Idle", 1))}},
		"another object":               {answers: []string{object("1", "9", status(2)), object("2", "10", status(1))}},
		"no object":                    {answers: []string{`{"apiVersion":"v1","kind":"Status","status":"Success"}`}},
		"nothing is observed":          {answers: []string{object("1", "9", status(2)), object("1", "10", `{}`)}},
	} {
		h := newHistory(plan{})
		h.enter(scenario[0].name)
		writers := []http.RoundTripper{transport{&life{history: h, ctx: t.Context()}, http.DefaultTransport},
			fleetTransport{&fleetOfTest{history: h}, http.DefaultTransport}}
		for i, answer := range test.answers {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, hub.URL+path, strings.NewReader(answer))
			if err != nil {
				t.Fatal(err)
			}
			response, err := writers[i%len(writers)].RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(response.Body)
			if err := errors.Join(err, response.Body.Close()); err != nil || string(got) != answer {
				t.Errorf("%s: the answer is %q, %v; want %q", what, got, err, answer)
			}
		}
		want := "<nil>"
		if test.want != "" {
			want = "PUT " + path + ": Thing c1/a: " + fmt.Sprintf(back, test.want)
		}
		if got := fmt.Sprint(h.failure()); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
}

// Objects are known by the same keys in requests and in what is stored.
func TestTargetsOfRequests(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/api/v1/namespaces/c1":                              "namespaces//c1",
		"/api/v1/namespaces/c1/secrets/a":                    "secrets/c1/a",
		"/api/v1/namespaces/c1/secrets":                      "",
		"/apis/example.com/v1/things/a":                      "things.example.com//a",
		"/apis/example.com/v1beta1/things":                   "",
		"/apis/example.com/v1/namespaces/c1/things/a/status": "things.example.com/c1/a",
	} {
		got, err := targetOf(httptest.NewRequestWithContext(t.Context(), http.MethodDelete, path, nil))
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
}

// Where a write has to be stored, one that the hub refuses is no point: the fault comes with the next one of the same name that is stored.
// Until then, the controllers go on, and get the hub's answers.
func TestRefusedWritesAreNoPoints(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/namespaces/c1/configmaps/a"
	step := scenario[0].name
	for f, test := range map[fault]struct {
		// want are the answers of the hub to four writes, of which it refuses the first and the third; -1 is a broken connection.
		want []int
		// stored are how many of them it stores.
		stored int
		ends   bool
	}{
		none:     {want: []int{409, 200, 409, 200}, stored: 2},
		crash:    {want: []int{409, -1, -1, -1}, stored: 1, ends: true},
		away:     {want: []int{409, -1, -1, -1}, stored: 1, ends: true},
		lost:     {want: []int{409, -1, 409, 200}, stored: 2},
		failed:   {want: []int{-1, 409, 200, 409}, stored: 1},
		conflict: {want: []int{409, 409, 200, 409}, stored: 1},
	} {
		asked := 0
		hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked%2 == 1 {
				w.WriteHeader(http.StatusConflict)
			}
		}))
		h := newHistory(plan{fault: f, at: map[string]string{step: "PUT " + path + " #1"}})
		h.enter(step)
		l := &life{history: h}
		l.ctx, l.end = context.WithCancel(t.Context())
		controller := transport{l, http.DefaultTransport}
		var got []int
		for range test.want {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, hub.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := controller.RoundTrip(request)
			if err != nil {
				got = append(got, -1)
				continue
			}
			got = append(got, response.StatusCode)
			_ = response.Body.Close() // it is empty
		}
		if !slices.Equal(got, test.want) || len(h.writes[step]) != test.stored || (l.ctx.Err() != nil) != test.ends {
			t.Errorf("%q: the answers are %v, and %q are points, the controllers have ended: %t; want %v, %d, %t", f, got, h.writes[step],
				l.ctx.Err() != nil, test.want, test.stored, test.ends)
		}
		if err := h.failure(); err != nil || !h.met[step] {
			t.Errorf("%q: met %t, %v", f, h.met[step], err)
		}
		l.end()
		hub.Close()
	}
}

// What a second run has to try are all points that were not met, and no others.
func TestUnmetPointsAreTriedAgain(t *testing.T) {
	t.Parallel()
	first, second := scenario[0].name, scenario[1].name
	r := &run{history: newHistory(plan{fault: crash, at: map[string]string{first: "PUT /a #1", second: "PUT /b #1"}})}
	r.history.enter(first)
	r.history.try("PUT /a")
	r.history.enter(second)
	r.history.try("PUT /c")
	counted := newTally()
	counted.add(r)
	counted.unmet[second] = append(counted.unmet[second], "PUT /b #2")
	if counted.planned != 2 || counted.missed() != 2 {
		t.Errorf("of %d points %d were not met, want 2 of 2: %v", counted.planned, counted.missed(), counted.unmet)
	}
	var again []string
	for _, at := range choose(crash, counted.unmet, 0, 1) {
		again = append(again, at[second])
	}
	slices.Sort(again)
	if want := []string{"PUT /b #1", "PUT /b #2"}; !slices.Equal(again, want) {
		t.Errorf("%q are tried again, want %q", again, want)
	}
}

// Points that are not met count by their share, but for a few; that none was met, always.
func TestTooManyPointsAreUnmet(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		missed, planned int
		want            bool
	}{{0, 0, false}, {0, 1, false}, {1, 1, true}, {1, 2, false}, {2, 3, false}, {3, 10, true}, {3, 30, false}, {4, 30, true}, {30, 30, true}} {
		if got := tooMany(test.missed, test.planned); got != test.want {
			t.Errorf("%d of %d: %t, want %t", test.missed, test.planned, got, test.want)
		}
	}
}

// A step that removes objects has not ended while one of them is there.
func TestRemovedObjectsAreGone(t *testing.T) {
	t.Parallel()
	const one = "apiVersion: v1\nkind: Secret\nmetadata: {namespace: apps, name: a}"
	const other = "apiVersion: v1\nkind: Namespace\nmetadata: {name: b}"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "a"}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	for what, test := range map[string]struct {
		stored []client.Object
		want   bool
	}{
		"all":       {stored: []client.Object{secret, namespace}},
		"the first": {stored: []client.Object{secret}},
		"the last":  {stored: []client.Object{namespace}},
		"none":      {want: true},
	} {
		f := &fleetOfTest{hub: fake.NewClientBuilder().WithScheme(env.Scheme()).WithObjects(test.stored...).Build()}
		for _, until := range []func(context.Context, *fleetOfTest) (bool, error){
			removed(one + "\n---\n" + other), removed(one, objectOf("v1", "Namespace", "", "b")),
			gone(objectOf("v1", "Secret", "apps", "a"), objectOf("v1", "Namespace", "", "b")),
		} {
			if got, err := until(t.Context(), f); got != test.want || err != nil {
				t.Errorf("%s is there: %t, %v; want %t", what, got, err, test.want)
			}
		}
	}
}

// The same seed chooses the same writes, whichever controller was faster and whatever else was written; another one chooses others.
func TestChosenWritesAreTheSameAgain(t *testing.T) {
	t.Parallel()
	step := scenario[0].name
	var writes, others []string
	for i := range 50 {
		writes = append(writes, numbered(fmt.Sprintf("PUT /%d", i), 1))
		others = append(others, numbered(fmt.Sprintf("PUT /%d", i), 2))
	}
	first := func(writes []string, most, seed int) (all []string) {
		for _, at := range choose(lost, map[string][]string{step: writes}, most, seed) {
			all = append(all, at[step])
		}
		return all
	}
	want := first(writes, 50, 1)
	backward := slices.Clone(writes)
	slices.Reverse(backward)
	other := func(write string) bool { return !slices.Contains(writes, write) }
	for what, got := range map[string][]string{
		"in another order": first(backward, 50, 1),
		"twice":            first(slices.Concat(writes, writes), 0, 1),
		"among others":     slices.DeleteFunc(first(slices.Concat(others, writes), 0, 1), other),
	} {
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q are chosen, want %q", what, got, want)
		}
	}
	if few := first(writes, 3, 1); !slices.Equal(few, want[:3]) {
		t.Errorf("of 3, %q are chosen, want %q", few, want[:3])
	}
	if got := first(writes, 50, 2); slices.Equal(got, want) {
		t.Errorf("another seed chooses the same ones, %q", got)
	}
}

// What a failure names can be given to the flag -point.
func TestPointsAreReadAsFailuresNameThem(t *testing.T) {
	t.Parallel()
	const write = "PUT /apis/example.com/v1/things/a=b #2"
	r := &run{history: newHistory(plan{fault: lost, at: map[string]string{"sets": write}})}
	for i, want := range []string{"no fault", `lost at "sets=` + write + `"`, `lost at "sets=` + write + `"`} {
		if got := r.disturbance(i); got != want {
			t.Errorf("step %d: %s, want %s", i, got, want)
		}
	}
	if got, err := parsePoint(pointOf("sets", write)); err != nil || len(got) != 1 || got["sets"] != write {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"sets", "nowhere=" + write, write} {
		if got, err := parsePoint(text); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q has to be a step", text)) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

// A step ends when nobody does anything and the hub stores what it should. It fails if that does not come: soon where nobody does anything,
// and after a while where controllers undo each other's writes for ever.
func TestStepsEnd(t *testing.T) {
	t.Parallel()
	one, other := store{"a": "1"}, store{"a": "2"}
	for what, test := range map[string]struct {
		look look
		want verdict
	}{
		"as it should be":            {look: look{want: one, have: one, rests: true}, want: ended},
		"as it should be, busy":      {look: look{want: one, have: one}, want: goesOn},
		"something else":             {look: look{want: one, have: other, rests: true, resting: patience}, want: goesOn},
		"something else for long":    {look: look{want: one, have: other, rests: true, resting: patience + 1}, want: differs},
		"busy for long":              {look: look{want: one, have: one, lasting: longestStep + 1}, want: restless},
		"busy with pauses for long":  {look: look{want: one, have: other, rests: true, lasting: longestStep + 1}, want: restless},
		"as it should be after long": {look: look{want: one, have: one, rests: true, lasting: longestStep + 1}, want: ended},
		"undisturbed, first look":    {look: look{have: one, rests: true}, want: goesOn},
		"undisturbed, the same":      {look: look{before: one, have: one, rests: true}, want: ended},
		"undisturbed, changed":       {look: look{before: other, have: one, rests: true, resting: patience + 1}, want: goesOn},
		"undisturbed, going":         {look: look{before: one, have: one, rests: true, going: true}, want: goesOn},
		"undisturbed, for long":      {look: look{before: other, have: one, rests: true, lasting: longestStep + 1}, want: restless},
	} {
		if got := test.look.verdict(nil); got != test.want {
			t.Errorf("%s: verdict %d, want %d", what, got, test.want)
		}
	}
}

// What is written again and again in a step is named, whether or not the hub stores it.
func TestBusiestWrites(t *testing.T) {
	t.Parallel()
	h := newHistory(plan{})
	h.enter(scenario[0].name)
	h.try("PUT /before")
	h.enter(scenario[1].name)
	for i := range 7 {
		for range i {
			h.try(fmt.Sprintf("PUT /%d", i))
		}
	}
	if got, want := h.busiest(), "PUT /6, 6 times\nPUT /5, 5 times\nPUT /4, 4 times\nPUT /3, 3 times\nPUT /2, 2 times"; got != want {
		t.Errorf("%s; want\n%s", got, want)
	}
}

// A work counts as unfinished from the moment the hub writes it until its agent reports about what was written.
func TestUnfinishedWorks(t *testing.T) {
	t.Parallel()
	work := func(name string, generation, reported int64) workv1.ManifestWork {
		w := workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, Generation: generation}}
		if reported > 0 {
			w.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionAvailable, Status: metav1.ConditionTrue, ObservedGeneration: reported}}
		}
		return w
	}
	leaving := work("leaving", 1, 0)
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	got := unfinished([]workv1.ManifestWork{work("new", 1, 0), work("changed", 2, 1), work("done", 2, 2), leaving})
	if want := []string{"c1/new", "c1/changed"}; !slices.Equal(got, want) {
		t.Errorf("%q are unfinished, want %q", got, want)
	}
}

// An add-on counts as unfinished from the moment it gets configurations until it has applied these, but for those that wait for their turn.
func TestUnfinishedAddOns(t *testing.T) {
	t.Parallel()
	hash := func(h string) *addonv1beta1.ConfigSpecHash {
		return &addonv1beta1.ConfigSpecHash{ConfigReferent: addonv1beta1.ConfigReferent{Name: "settings"}, SpecHash: h}
	}
	installed := func(name, cluster string, references ...addonv1beta1.ConfigReference) addonv1beta1.ManagedClusterAddOn {
		a := addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
		a.Status.ConfigReferences = references
		return a
	}
	given := addonv1beta1.ConfigReference{DesiredConfig: hash("2")}
	leaving := installed(addOnOfTest, "leaving", given)
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	got := unfinishedAddOns([]addonv1beta1.ManagedClusterAddOn{
		installed(addOnOfTest, "new"), installed(addOnOfTest, "given", given),
		installed(addOnOfTest, "changed", addonv1beta1.ConfigReference{DesiredConfig: hash("2"), LastAppliedConfig: hash("1")}),
		installed(addOnOfTest, "done", addonv1beta1.ConfigReference{DesiredConfig: hash("2"), LastAppliedConfig: hash("2")}),
		installed(addOnOfTest, "waiting", addonv1beta1.ConfigReference{DesiredConfig: hash("")}), leaving, installed("other", "given", given),
	})
	if want := []string{"given/" + addOnOfTest, "changed/" + addOnOfTest}; !slices.Equal(got, want) {
		t.Errorf("%q are unfinished, want %q", got, want)
	}
}

// As many as the maxConcurrency may be unfinished at a time, and no more.
func TestConcurrencyOfRollouts(t *testing.T) {
	t.Parallel()
	if err := checkConcurrency("set web", "works", []string{"c1/web"}); err != nil {
		t.Error(err)
	}
	err := checkConcurrency("set web", "works", []string{"c1/web", "c2/web"})
	if err == nil || !strings.Contains(err.Error(), "set web allows 1 unfinished works at a time, and there are 2: c1/web, c2/web") {
		t.Error(err)
	}
}

// What the hub has acknowledged of a set has to be applied on each cluster that is selected, unless a condition of the set is False.
func TestAcknowledgedWorkloadsReachClusters(t *testing.T) {
	t.Parallel()
	const v1 = `{"apiVersion":"v1","data":{"version":"1"},"kind":"ConfigMap"}`
	const v2 = `{"apiVersion":"v1","data":{"version":"2"},"kind":"ConfigMap"}`
	objects, err := parse(`
apiVersion: work.open-cluster-management.io/v1alpha1
kind: ManifestWorkReplicaSet
metadata: {namespace: apps, name: web}
spec:
  placementRefs: [{name: all}]
  manifestWorkTemplate: {workload: {manifests: [{apiVersion: v1, kind: ConfigMap, data: {version: "2"}}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: apps, name: other}
`)
	if err != nil {
		t.Fatal(err)
	}
	decision := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "all-1",
		Labels: map[string]string{fleet.LabelPlacement: "all"}}}
	decision.Status.Decisions = []clusterv1beta1.ClusterDecision{{ClusterName: "c1"}}
	set := func(status metav1.ConditionStatus) client.Object {
		s := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "web"}}
		s.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionPlacementRolledOut, Status: status}}
		return s
	}
	work := func(cluster, manifest string, reported int64) client.Object {
		w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "web", Generation: 2,
			Labels: map[string]string{fleet.LabelManifestWorkReplicaSet: "apps.web"}}}
		w.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}}}
		w.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionAvailable, Status: metav1.ConditionTrue, ObservedGeneration: reported}}
		return w
	}
	leaving := work("c1", v2, 2)
	leaving.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	leaving.SetFinalizers([]string{fleet.FinalizerManifestWorkCleanup})
	for what, test := range map[string]struct {
		stored []client.Object
		fails  bool
	}{
		"on the cluster":           {stored: []client.Object{set(metav1.ConditionTrue), work("c1", v2, 2)}},
		"of before":                {stored: []client.Object{set(metav1.ConditionTrue), work("c1", v1, 2)}, fails: true},
		"not reported of":          {stored: []client.Object{set(metav1.ConditionTrue), work("c1", v2, 1)}, fails: true},
		"being deleted":            {stored: []client.Object{set(metav1.ConditionTrue), leaving}, fails: true},
		"on another cluster":       {stored: []client.Object{set(metav1.ConditionTrue), work("c2", v2, 2)}, fails: true},
		"nowhere, and it is known": {stored: []client.Object{set(metav1.ConditionFalse)}},
		"lost":                     {fails: true},
	} {
		stored := slices.Concat(test.stored, []client.Object{decision.DeepCopy()})
		f := &fleetOfTest{hub: fake.NewClientBuilder().WithScheme(env.Scheme()).WithObjects(stored...).Build()}
		f.begin(newHistory(plan{}))
		for _, o := range objects {
			if err := f.acknowledge(o); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.checkDelivery(t.Context()); (err != nil) != test.fails {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Without faults, a set is rolled out, no condition of it is False, and its works were compared with its maxConcurrency.
func TestSetsAreRolledOut(t *testing.T) {
	t.Parallel()
	const key = "apps.web"
	isTrue := metav1.Condition{Type: fleet.ConditionPlacementRolledOut, Status: metav1.ConditionTrue}
	isFalse := metav1.Condition{Type: fleet.ConditionPlacementRolledOut, Status: metav1.ConditionFalse, Reason: fleet.ReasonProgressing}
	notApplied := metav1.Condition{Type: fleet.ConditionManifestworkApplied, Status: metav1.ConditionFalse}
	for what, test := range map[string]struct {
		conditions []metav1.Condition
		compared   int
		want       string
	}{
		"rolled out":    {conditions: []metav1.Condition{isTrue}, compared: 3},
		"on its way":    {conditions: []metav1.Condition{isFalse}, compared: 3, want: "want PlacementRolledOut True"},
		"not applied":   {conditions: []metav1.Condition{isTrue, notApplied}, compared: 3, want: "and none False"},
		"nothing known": {compared: 3, want: "want PlacementRolledOut True"},
		"not compared":  {conditions: []metav1.Condition{isTrue}, want: "no agent has finished a work of ManifestWorkReplicaSet " + key},
	} {
		set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "web"}}
		set.Status.Conditions = test.conditions
		f := &fleetOfTest{hub: fake.NewClientBuilder().WithScheme(env.Scheme()).WithObjects(set).Build()}
		f.begin(newHistory(plan{}))
		if err := checkRolledOut(t.Context(), f); err == nil {
			t.Errorf("%s: no set is known, and nothing is wrong", what)
		}
		f.acknowledged[client.ObjectKeyFromObject(set)] = set
		f.compared[rolloutOf(key)] = test.compared
		expectProblem(t, what, checkRolledOut(t.Context(), f), test.want)
	}
}

// Without faults, the add-on is applied as it is configured on each cluster, and was compared with its maxConcurrency.
func TestAddOnIsApplied(t *testing.T) {
	t.Parallel()
	hash := func(h string) *addonv1beta1.ConfigSpecHash {
		return &addonv1beta1.ConfigSpecHash{ConfigReferent: addonv1beta1.ConfigReferent{Name: "settings"}, SpecHash: h}
	}
	applied := addonv1beta1.ConfigReference{DesiredConfig: hash("2"), LastAppliedConfig: hash("2")}
	for what, test := range map[string]struct {
		clusters   []string
		references []addonv1beta1.ConfigReference
		compared   int
		want       string
	}{
		"applied":        {clusters: []string{"c1", "c2", "c3"}, references: []addonv1beta1.ConfigReference{applied}, compared: 3},
		"not everywhere": {clusters: []string{"c1", "c2"}, references: []addonv1beta1.ConfigReference{applied}, compared: 3, want: "not found"},
		"not configured": {clusters: []string{"c1", "c2", "c3"}, compared: 3, want: "each applied as it is desired"},
		"as before": {clusters: []string{"c1", "c2", "c3"}, compared: 3, want: "each applied as it is desired",
			references: []addonv1beta1.ConfigReference{{DesiredConfig: hash("2"), LastAppliedConfig: hash("1")}}},
		"waiting": {clusters: []string{"c1", "c2", "c3"}, compared: 3, want: "each applied as it is desired",
			references: []addonv1beta1.ConfigReference{{DesiredConfig: hash(""), LastAppliedConfig: hash("")}}},
		"not compared": {clusters: []string{"c1", "c2", "c3"}, references: []addonv1beta1.ConfigReference{applied},
			want: "no agent has finished a work of add-on greeter"},
	} {
		b := fake.NewClientBuilder().WithScheme(env.Scheme())
		for _, cluster := range test.clusters {
			addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: addOnOfTest}}
			addOn.Status.ConfigReferences = test.references
			b = b.WithObjects(addOn)
		}
		f := &fleetOfTest{hub: b.Build()}
		f.begin(newHistory(plan{}))
		f.compared[rolloutOfAddOn] = test.compared
		expectProblem(t, what, checkApplied(t.Context(), f), test.want)
	}
}

// expectProblem expects an error that says something, or none if that is empty.
func expectProblem(t *testing.T, what string, err error, want string) {
	t.Helper()
	if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// The works that agents finish are compared with the maxConcurrency of their rollout, and others with none.
func TestRolloutsAreCompared(t *testing.T) {
	t.Parallel()
	for label, test := range map[string]struct{ value, want string }{
		fleet.LabelManifestWorkReplicaSet: {value: "apps.web", want: rolloutOf("apps.web")},
		fleet.LabelAddOnName:              {value: addOnOfTest, want: rolloutOfAddOn},
		"example.com/other":               {value: "other"},
	} {
		f := &fleetOfTest{hub: fake.NewClientBuilder().WithScheme(env.Scheme()).Build()}
		f.begin(newHistory(plan{}))
		w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "a", Labels: map[string]string{label: test.value}}}
		if err := f.checkRollout(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		want := map[string]int{}
		if test.want != "" {
			want[test.want] = 1
		}
		if !maps.Equal(f.compared, want) {
			t.Errorf("%s: compared are %v, want %v", label, f.compared, want)
		}
	}
}

// No controller of the campaign writes nothing unnoticed.
func TestSilentControllersAreKnown(t *testing.T) {
	t.Parallel()
	running, wrote := []string{"writes", "forgotten", "known", "restless"}, map[string]bool{"writes": true, "restless": true}
	got := checkWriters(running, wrote, map[string]string{"known": "", "restless": "", "gone": ""})
	want := []string{"forgotten writes nothing: extend the scenario, or say in silent why it does not",
		"gone does not run: take it out of silent", "restless writes: take it out of silent"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Writes are those of the controller in whose reconcile they are made.
func TestWritesAreOfControllers(t *testing.T) {
	t.Parallel()
	ctx := logr.NewContext(t.Context(), newLogger().WithValues("controller", "one", "namespace", "a").WithName("b").WithValues("name", "c"))
	if got := controllerOf(ctx); got != "one" {
		t.Errorf("the write is of %q, want one", got)
	}
	if got := controllerOf(t.Context()); got != "" {
		t.Errorf("a write outside of reconciles is of %q", got)
	}
}

// What a hub writes at its end says why it has ended, however long the stacks after that are.
func TestPanicOfTheHub(t *testing.T) {
	t.Parallel()
	const reason = "panic: Cache consistency check failed"
	if got := panicIn("started\n" + reason + strings.Repeat("\nframe", 1000)); !strings.HasPrefix(got, reason) || len(got) != 2000 {
		t.Errorf("%q", got)
	}
	if got := panicIn("started"); got != "it wrote nothing about a panic" {
		t.Errorf("%q", got)
	}
}
