package resources

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
)

// hub is an API with the services on it.
type hub struct {
	client.Client
	services map[cloudevents.DataType]broker.Service
	informer *controllertest.FakeInformer
	mu       sync.Mutex
	told     []broker.Change
	reviewed []string
}

// fakeCache reads from the API.
type fakeCache struct {
	cache.Cache
	client.Reader
	informer *controllertest.FakeInformer
}

func (c fakeCache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.Reader.Get(ctx, key, o, opts...)
}

func (c fakeCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Reader.List(ctx, list, opts...)
}

func (c fakeCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c.informer, nil
}

func newHub(t *testing.T, objects ...client.Object) *hub {
	t.Helper()
	h := &hub{services: map[cloudevents.DataType]broker.Service{}, informer: controllertest.NewFakeInformer()}
	builder := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(objects...).
		WithStatusSubresource(&clusterv1.ManagedCluster{}, &workv1.ManifestWork{}, &addonv1beta1.ManagedClusterAddOn{}).
		WithIndex(&workv1.ManifestWork{}, uidField, func(o client.Object) []string { return []string{string(o.GetUID())} }).
		WithIndex(&clusterv1.ManagedCluster{}, nameField, func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceCreate: func(_ context.Context, _ client.Client, _ string, o, sub client.Object,
			_ ...client.SubResourceCreateOption) error {
			request, ok := sub.(*authenticationv1.TokenRequest)
			if !ok || o.GetNamespace() == "" {
				t.Errorf("%T of %T %s", sub, o, client.ObjectKeyFromObject(o))
				return nil
			}
			request.Status.Token = "token of " + client.ObjectKeyFromObject(o).String()
			return nil
		}})
	h.Client = builder.Build()
	_, all := All(Options{Cache: fakeCache{Reader: h.Client, informer: h.informer}, Client: h.Client, Reader: h.Client,
		Notify: func(change broker.Change) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.told = append(h.told, change)
		},
		Review: func(cluster string) { h.reviewed = append(h.reviewed, cluster) }})
	for _, service := range all {
		h.services[service.DataType()] = service
	}
	return h
}

var agentOfC1 = &access.Caller{UserInfo: authenticationv1.UserInfo{Username: "system:open-cluster-management:c1:a1"}}

// write does what an event of the agent of c1 asks for, as the server would.
func (h *hub) write(t *testing.T, eventType cloudevents.Type, data any) error {
	t.Helper()
	event := cloudevents.New("c1", eventType, time.Now())
	event.Extensions["clustername"] = "c1"
	if err := event.SetData(data); err != nil {
		t.Fatal(err)
	}
	return h.do(t, eventType, event)
}

func (h *hub) do(t *testing.T, eventType cloudevents.Type, event *cloudevents.Event) error {
	t.Helper()
	write, err := h.services[eventType.DataType].Prepare(event, eventType, "c1")
	if err != nil {
		return err
	}
	return write.Do(t.Context(), agentOfC1)
}

func spec(dataType cloudevents.DataType, action cloudevents.Action) cloudevents.Type {
	return cloudevents.Type{DataType: dataType, SubResource: cloudevents.Spec, Action: action}
}

func statusOf(dataType cloudevents.DataType) cloudevents.Type {
	return cloudevents.Type{DataType: dataType, SubResource: cloudevents.Status, Action: cloudevents.Update}
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// GR-07 GR-08: an agent that is authorized for its cluster gets at nothing of another one by what the data of its events says, nor at
// anything that agents have no part in.
func TestAttackers(t *testing.T) {
	t.Parallel()
	label := "open-cluster-management.io/cluster-name"
	for name, test := range map[string]struct {
		eventType cloudevents.Type
		data      any
	}{
		"create another cluster": {spec(cloudevents.ManagedClusters, cloudevents.Create), &clusterv1.ManagedCluster{ObjectMeta: named("",
			"c2")}},
		"update another cluster": {spec(cloudevents.ManagedClusters, cloudevents.Update), &clusterv1.ManagedCluster{ObjectMeta: named("",
			"c2")}},
		"status of another cluster": {statusOf(cloudevents.ManagedClusters), &clusterv1.ManagedCluster{ObjectMeta: named("", "c2")}},
		"cluster in a namespace":    {statusOf(cloudevents.ManagedClusters), &clusterv1.ManagedCluster{ObjectMeta: named("c2", "c1")}},
		"a path":                    {statusOf(cloudevents.ManagedClusters), &clusterv1.ManagedCluster{ObjectMeta: named("", "c1/../c2")}},
		"delete its cluster": {spec(cloudevents.ManagedClusters, cloudevents.Delete), &clusterv1.ManagedCluster{ObjectMeta: named("",
			"c1")}},
		"request of another cluster": {spec(cloudevents.SigningRequests, cloudevents.Create), request("c2")},
		"request of no cluster": {spec(cloudevents.SigningRequests, cloudevents.Create),
			&certificatesv1.CertificateSigningRequest{ObjectMeta: named("", "x")}},
		"request without a name": {spec(cloudevents.SigningRequests, cloudevents.Create),
			&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{label: "c1"}}}},
		"approve its request":       {statusOf(cloudevents.SigningRequests), request("c1")},
		"change its request":        {spec(cloudevents.SigningRequests, cloudevents.Update), request("c1")},
		"add-on of another cluster": {statusOf(cloudevents.AddOnsOfBetaAPI), &addonv1beta1.ManagedClusterAddOn{ObjectMeta: named("c2", "a")}},
		"add-on with a path": {statusOf(cloudevents.AddOnsOfBetaAPI), &addonv1beta1.ManagedClusterAddOn{ObjectMeta: named("c1",
			"../../c2/a")}},
		"install an add-on": {spec(cloudevents.AddOnsOfBetaAPI, cloudevents.Create),
			&addonv1beta1.ManagedClusterAddOn{ObjectMeta: named("c1", "b")}},
		"configure an add-on": {spec(cloudevents.AddOnsOfBetaAPI, cloudevents.Update),
			&addonv1beta1.ManagedClusterAddOn{ObjectMeta: named("c1", "a")}},
		"another kind": {statusOf(cloudevents.AddOnsOfBetaAPI), map[string]any{"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{"namespace": "c1", "name": "a"}}},
		"lease of another cluster": {spec(cloudevents.Leases, cloudevents.Update), &coordinationv1.Lease{ObjectMeta: named("c2",
			"managed-cluster-lease")}},
		"another lease": {spec(cloudevents.Leases, cloudevents.Update), &coordinationv1.Lease{ObjectMeta: named("c1",
			"hub-controllers")}},
		"create a lease": {spec(cloudevents.Leases, cloudevents.Create), &coordinationv1.Lease{ObjectMeta: named("c1",
			"managed-cluster-lease")}},
		"event of another cluster":  {spec(cloudevents.Events, cloudevents.Create), &eventsv1.Event{ObjectMeta: named("c2", "e")}},
		"event without a namespace": {spec(cloudevents.Events, cloudevents.Create), &eventsv1.Event{ObjectMeta: named("", "e")}},
		"delete an event":           {spec(cloudevents.Events, cloudevents.Delete), &eventsv1.Event{ObjectMeta: named("c1", "e")}},
		"token of another cluster":  {spec(cloudevents.TokenRequests, cloudevents.Create), token("c2", "sa")},
		"token of the hub": {spec(cloudevents.TokenRequests, cloudevents.Create), token("open-cluster-management-hub",
			"grpc-server-sa")},
		"token by a path": {spec(cloudevents.TokenRequests, cloudevents.Create), token("c1", "../../c2/serviceaccounts/sa")},
		"token with no answer": {spec(cloudevents.TokenRequests, cloudevents.Create),
			&authenticationv1.TokenRequest{ObjectMeta: named("c1", "sa")}},
		"create a work":                {spec(cloudevents.ManifestBundles, cloudevents.Create), manifestbundle.Spec{}},
		"change a work":                {spec(cloudevents.ManifestBundles, cloudevents.Update), manifestbundle.Spec{}},
		"status of a work without UID": {statusOf(cloudevents.ManifestBundles), manifestbundle.Status{}},
		"no object":                    {statusOf(cloudevents.ManagedClusters), []string{"c1"}},
		"quantity that takes minutes": {spec(cloudevents.ManagedClusters, cloudevents.Create),
			sized(`"status": {"capacity": {"cpu": "1e-300000000"}}`)},
		"allocatable quantity": {statusOf(cloudevents.ManagedClusters), sized(`"status": {"allocatable": {"cpu": "1e-300000000"}}`)},
		"number":               {statusOf(cloudevents.ManagedClusters), sized(`"status": {"capacity": {"cpu": 1e-300000000}}`)},
		"quantity in space":    {statusOf(cloudevents.ManagedClusters), sized(`"status": {"capacity": {"cpu": " 1e-300000000 "}}`)},
		"keys in another case": {statusOf(cloudevents.ManagedClusters), sized(`"STATUS": {"Capacity": {"cpu": "1e-300000000"}}`)},
		"repeated keys": {statusOf(cloudevents.ManagedClusters),
			sized(`"status": {"capacity": {"cpu": "1e-300000000"}}, "status": {"capacity": {"cpu": "1"}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, &clusterv1.ManagedCluster{ObjectMeta: named("", "c2")}, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: named("c2", "a")},
				&coordinationv1.Lease{ObjectMeta: named("c2", "managed-cluster-lease")})
			err := h.write(t, test.eventType, test.data)
			if !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) {
				t.Errorf("got %v, want a refusal", err)
			}
			if len(h.told) > 0 {
				t.Errorf("told: %v", h.told)
			}
		})
	}
}

// sized is the ManagedCluster of c1 with more members.
func sized(members string) json.RawMessage {
	return json.RawMessage(`{"metadata": {"name": "c1"}, ` + members + `}`)
}

func request(cluster string) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "r",
		Labels: map[string]string{"open-cluster-management.io/cluster-name": cluster}}}
}

func token(namespace, account string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account, UID: "id"}}
}

// GR-08: of a cluster that asks to join, the server takes how it is reached and annotations of agents, and notes who asks.
func TestCreateCluster(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	if err := h.write(t, spec(cloudevents.ManagedClusters, cloudevents.Create), &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: map[string]string{"cluster.open-cluster-management.io/clusterset": "secrets"},
			Annotations: map[string]string{"agent.open-cluster-management.io/x": "y", "capstan.io/requested-by": "admin", "other": "z"},
			Finalizers:  []string{"stay"}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "s", UID: "u"}}},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true, Taints: []clusterv1.Taint{{Key: "k"}},
			ManagedClusterClientConfigs: []clusterv1.ClientConfig{{URL: "https://c1"}}},
	}); err != nil {
		t.Fatal(err)
	}
	got := &clusterv1.ManagedCluster{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "c1"}, got); err != nil {
		t.Fatal(err)
	}
	if len(got.Labels)+len(got.Finalizers)+len(got.OwnerReferences)+len(got.Spec.Taints) > 0 || got.Spec.HubAcceptsClient ||
		len(got.Annotations) != 2 || got.Annotations["agent.open-cluster-management.io/x"] != "y" ||
		got.Annotations["capstan.io/requested-by"] != agentOfC1.Username || got.Spec.ManagedClusterClientConfigs[0].URL != "https://c1" {
		t.Errorf("created %+v", got)
	}
}

// GR-08: an agent changes how its cluster is reached, and neither what administrators decide nor what the hub says.
func TestUpdateCluster(t *testing.T) {
	t.Parallel()
	of := func(accepted metav1.ConditionStatus, available metav1.ConditionStatus) clusterv1.ManagedClusterStatus {
		return clusterv1.ManagedClusterStatus{Conditions: []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: accepted},
			{Type: "ManagedClusterConditionAvailable", Status: available}}}
	}
	h := newHub(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: map[string]string{"a": "b"},
		Finalizers: []string{"f"}},
		Status: of(metav1.ConditionFalse, metav1.ConditionUnknown)})
	sent := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: map[string]string{"a": "c"},
		Annotations: map[string]string{"x": "y"}},
		Spec:   clusterv1.ManagedClusterSpec{HubAcceptsClient: true, ManagedClusterClientConfigs: []clusterv1.ClientConfig{{URL: "https://c1"}}},
		Status: of(metav1.ConditionTrue, metav1.ConditionTrue)}
	if err := h.write(t, spec(cloudevents.ManagedClusters, cloudevents.Update), sent); err != nil {
		t.Fatal(err)
	}
	if err := h.write(t, statusOf(cloudevents.ManagedClusters), sent); err != nil {
		t.Fatal(err)
	}
	got := &clusterv1.ManagedCluster{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "c1"}, got); err != nil {
		t.Fatal(err)
	}
	if got.Labels["a"] != "b" || len(got.Annotations) > 0 || len(got.Finalizers) != 1 || got.Spec.HubAcceptsClient ||
		len(got.Spec.ManagedClusterClientConfigs) != 1 || meta.IsStatusConditionTrue(got.Status.Conditions, "HubAcceptedManagedCluster") ||
		!meta.IsStatusConditionTrue(got.Status.Conditions, "ManagedClusterConditionAvailable") {
		t.Errorf("now it is %+v", got)
	}
	sent.ResourceVersion = "1"
	if err := h.write(t, statusOf(cloudevents.ManagedClusters), sent); !apierrors.IsConflict(err) {
		t.Errorf("of a version from before: %v", err)
	}
}

// Which cluster of AWS it is, an agent says when it creates its ManagedCluster, and does not change.
func TestClusterOfAWS(t *testing.T) {
	t.Parallel()
	const prefix, c1, c2 = "agent.open-cluster-management.io/", "arn:aws:eks:us-west-2:1:cluster/c1", "arn:aws:eks:us-west-2:2:cluster/c2"
	annotations := func(arn, suffix, other string) map[string]string {
		return map[string]string{prefix + "managed-cluster-arn": arn, prefix + "managed-cluster-iam-role-suffix": suffix, prefix + "x": other}
	}
	h := newHub(t)
	expect := func(want map[string]string) {
		t.Helper()
		got := &clusterv1.ManagedCluster{}
		if err := h.Get(t.Context(), client.ObjectKey{Name: "c1"}, got); err != nil {
			t.Fatal(err)
		}
		delete(got.Annotations, "capstan.io/requested-by")
		if !maps.Equal(got.Annotations, want) {
			t.Errorf("the annotations are %v, want %v", got.Annotations, want)
		}
	}
	for _, step := range []struct {
		action     cloudevents.Action
		sent, want map[string]string
	}{
		{cloudevents.Create, annotations(c1, "a", "1"), annotations(c1, "a", "1")},
		{cloudevents.Update, annotations(c2, "b", "2"), annotations(c1, "a", "2")},
	} {
		if err := h.write(t, spec(cloudevents.ManagedClusters, step.action),
			&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Annotations: step.sent}}); err != nil {
			t.Fatal(err)
		}
		expect(step.want)
	}
}

// GR-08: a certificate request is made in the name of the caller, whatever annotations it comes with, and without what would keep it.
func TestCreateSigningRequest(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	csr := request("c1")
	csr.Annotations = map[string]string{"open-cluster-management.io/csr-user": "system:open-cluster-management:c2:a1", "x": "y"}
	csr.Finalizers = []string{"stay"}
	csr.Spec.SignerName, csr.Spec.Username, csr.Spec.Groups = "open-cluster-management.io/grpc", "admin", []string{"system:masters"}
	csr.Status.Certificate = []byte("mine")
	if err := h.write(t, spec(cloudevents.SigningRequests, cloudevents.Create), csr); err != nil {
		t.Fatal(err)
	}
	got := &certificatesv1.CertificateSigningRequest{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "r"}, got); err != nil {
		t.Fatal(err)
	}
	if len(got.Annotations) != 1 || got.Annotations["open-cluster-management.io/csr-user"] != agentOfC1.Username || len(got.Finalizers) > 0 ||
		got.Spec.Username != "" || len(got.Spec.Groups) > 0 || len(got.Status.Certificate) > 0 || got.Spec.SignerName != csr.Spec.SignerName {
		t.Errorf("created %+v", got)
	}
}

// GR-08: an agent says how an add-on does and by which driver it registers; as whom the add-on acts on the hub is not for it to say.
func TestUpdateAddOn(t *testing.T) {
	t.Parallel()
	registered := func(user, driver string) *addonv1beta1.ManagedClusterAddOn {
		addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: named("c1", "a")}
		addOn.Status.Namespace = user
		addOn.Status.Registrations = []addonv1beta1.RegistrationConfig{{Type: addonv1beta1.KubeClient, KubeClient: &addonv1beta1.KubeClientConfig{
			Driver: addonv1beta1.KubeClientDriver(driver), Subject: addonv1beta1.KubeClientSubject{User: user}}}}
		return addOn
	}
	h := newHub(t, registered("agent", ""))
	sent := registered("admin", "token")
	sent.Labels = map[string]string{"a": "b"}
	sent.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionTrue}}
	if err := h.write(t, statusOf(cloudevents.AddOnsOfBetaAPI), sent); err != nil {
		t.Fatal(err)
	}
	got := &addonv1beta1.ManagedClusterAddOn{}
	if err := h.Get(t.Context(), client.ObjectKey{Namespace: "c1", Name: "a"}, got); err != nil {
		t.Fatal(err)
	}
	if kubeClient := got.Status.Registrations[0].KubeClient; kubeClient.Subject.User != "agent" || kubeClient.Driver != "token" ||
		got.Status.Namespace != "agent" || len(got.Labels) > 0 || !meta.IsStatusConditionTrue(got.Status.Conditions, "Available") {
		t.Errorf("now it is %+v", got)
	}
}

// GR-08: an agent renews its lease, records events, and changes nothing of them but their series.
func TestLeaseAndEvents(t *testing.T) {
	t.Parallel()
	holder, at := "agent", metav1.NewMicroTime(time.Now())
	h := newHub(t, &coordinationv1.Lease{ObjectMeta: named("c1", "managed-cluster-lease")})
	lease := &coordinationv1.Lease{ObjectMeta: named("c1", "managed-cluster-lease"), Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder,
		RenewTime: &at}}
	lease.Finalizers = []string{"stay"}
	if err := h.write(t, spec(cloudevents.Leases, cloudevents.Update), lease); err != nil {
		t.Fatal(err)
	}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil || lease.Spec.RenewTime == nil ||
		len(lease.Finalizers) > 0 {
		t.Errorf("lease %+v, %v", lease, err)
	}
	event := &eventsv1.Event{ObjectMeta: named("c1", "e"), Reason: "Joined", Note: "before"}
	event.Finalizers = []string{"stay"}
	if err := h.write(t, spec(cloudevents.Events, cloudevents.Create), event); err != nil {
		t.Fatal(err)
	}
	event.Note, event.Series = "after", &eventsv1.EventSeries{Count: 2, LastObservedTime: at}
	if err := h.write(t, spec(cloudevents.Events, cloudevents.Update), event); err != nil {
		t.Fatal(err)
	}
	got := &eventsv1.Event{}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(event), got); err != nil || got.Note != "before" || got.Series == nil ||
		len(got.Finalizers) > 0 {
		t.Errorf("event %+v, %v", got, err)
	}
}

// workStatus is an event of an agent about a work.
func workStatus(t *testing.T, work *workv1.ManifestWork, conditions ...string) *cloudevents.Event {
	t.Helper()
	sent := work.DeepCopy()
	sent.Finalizers, sent.Labels = []string{"stay"}, map[string]string{"a": "c"}
	for _, condition := range conditions {
		sent.Status.Conditions = append(sent.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
	}
	event, err := manifestbundle.EncodeStatus("c1", cloudevents.Update, sent, "1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return event
}

const cleanup = "cluster.open-cluster-management.io/manifest-work-cleanup"

// GR-09: the status of a work gets to the hub, with the finalizer of the agent; one of another generation does not, be it an earlier one,
// or one from before a restore.
func TestWorkStatus(t *testing.T) {
	t.Parallel()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w", UID: "u", Generation: 3,
		Labels: map[string]string{"a": "b"}}}
	of := statusOf(cloudevents.ManifestBundles)
	h := newHub(t, work)
	got := &workv1.ManifestWork{}
	read := func() {
		t.Helper()
		if err := h.Get(t.Context(), client.ObjectKeyFromObject(work), got); err != nil {
			t.Fatal(err)
		}
	}
	for _, generation := range []int64{2, 4} {
		other := work.DeepCopy()
		other.Generation = generation
		if err := h.do(t, of, workStatus(t, other, "Applied")); err != nil {
			t.Fatal(err)
		}
		if read(); len(got.Status.Conditions)+len(got.Finalizers) > 0 {
			t.Errorf("after a status of generation %d: %+v", generation, got)
		}
	}
	if err := h.do(t, of, workStatus(t, work, "Applied")); err != nil {
		t.Fatal(err)
	}
	if read(); !meta.IsStatusConditionTrue(got.Status.Conditions, "Applied") || !slices.Equal(got.Finalizers, []string{cleanup}) ||
		got.Labels["a"] != "b" {
		t.Errorf("after a status: %+v", got)
	}
	if err := h.do(t, of, workStatus(t, work, "Deleted")); !apierrors.IsForbidden(err) {
		t.Errorf("a work that is not being deleted is said to be: %v", err)
	}
	if err := h.Delete(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if err := h.do(t, of, workStatus(t, work, "Deleted")); err != nil {
		t.Fatal(err)
	}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(work), got); !apierrors.IsNotFound(err) {
		t.Errorf("the work is not let go of: %+v, %v", got, err)
	}
}

// GR-09: a work of another cluster is not found by its UID, and keeps its finalizers.
func TestWorkOfAnotherCluster(t *testing.T) {
	t.Parallel()
	theirs := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c2", Name: "w", UID: "theirs", Finalizers: []string{cleanup}}}
	h := newHub(t, theirs)
	if err := h.Delete(t.Context(), theirs.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	ours := theirs.DeepCopy()
	ours.Namespace = "c1"
	if err := h.do(t, statusOf(cloudevents.ManifestBundles), workStatus(t, ours, "Deleted")); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if err := h.do(t, statusOf(cloudevents.ManifestBundles), workStatus(t, theirs, "Deleted")); !apierrors.IsForbidden(err) {
		t.Errorf("in the extension: %v", err)
	}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil || len(theirs.Finalizers) != 1 {
		t.Errorf("%+v, %v", theirs, err)
	}
}

// GR-07 GR-09: the right to report on a work is asked for by the name that the agent says, so that the agent of a denied cluster reports on
// those that it is to finish. With that of one work, it reports on no other.
func TestWorkStatusByName(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		says         string
		refused, bad bool
	}{
		"its name":        {says: "w"},
		"no name":         {},
		"that of another": {says: "other", refused: true},
		"no name at all":  {says: "w/status", bad: true},
	} {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w", UID: "u"}}
		h := newHub(t, work)
		sent := work.DeepCopy()
		sent.Name = test.says
		write, err := h.services[cloudevents.ManifestBundles].Prepare(workStatus(t, sent, "Applied"), statusOf(cloudevents.ManifestBundles), "c1")
		if apierrors.IsBadRequest(err) != test.bad {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		if write.Name != test.says || write.Subresource != "status" {
			t.Errorf("%s: the right is for %q, subresource %q", name, write.Name, write.Subresource)
		}
		if err := write.Do(t.Context(), agentOfC1); apierrors.IsForbidden(err) != test.refused || err != nil && !test.refused {
			t.Errorf("%s: %v", name, err)
		}
		if err := h.Get(t.Context(), client.ObjectKeyFromObject(work), work); err != nil || (len(work.Status.Conditions) > 0) == test.refused {
			t.Errorf("%s: written: %+v, %v", name, work.Status, err)
		}
	}
}

// GR-08: a token is for whom has asked, and for no other subscriber of the cluster.
func TestTokens(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	if err := h.write(t, spec(cloudevents.TokenRequests, cloudevents.Create), token("c1", "sa")); err != nil {
		t.Fatal(err)
	}
	if len(h.told) != 1 || h.told[0].Cluster != "c1" || h.told[0].User != agentOfC1.Username {
		t.Fatalf("told: %+v", h.told)
	}
	source, ok := h.services[cloudevents.TokenRequests].(broker.Source)
	if !ok {
		t.Fatal("nobody gets tokens")
	}
	get := func(cluster, user string) *authenticationv1.TokenRequest {
		t.Helper()
		event, err := source.Event(t.Context(), broker.Subscriber{Cluster: cluster, User: user}, h.told[0].Ref, cloudevents.Create, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if event == nil {
			return nil
		}
		answer := &authenticationv1.TokenRequest{}
		if err := event.ReadData(answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if got := get("c1", agentOfC1.Username); got == nil || got.Status.Token != "token of c1/sa" || got.UID != "id" {
		t.Errorf("got %+v", got)
	}
	if get("c1", "other") != nil || get("c2", agentOfC1.Username) != nil {
		t.Error("others get it, too")
	}
}

// GR-09 CE-02: subscribers get the present state: what is not there any more, or is of another cluster now, is a deletion.
func TestEvent(t *testing.T) {
	t.Parallel()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w", UID: "u", Generation: 3}}
	h := newHub(t, work, request("c2"))
	event := func(dataType cloudevents.DataType, ref broker.Ref) *cloudevents.Event {
		t.Helper()
		source, _ := h.services[dataType].(broker.Catalogue)
		got, err := source.Event(t.Context(), broker.Subscriber{Cluster: "c1"}, ref, cloudevents.Update, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for name, test := range map[string]struct {
		dataType cloudevents.DataType
		ref      broker.Ref
		want     string
	}{
		"there":              {cloudevents.ManifestBundles, broker.Ref{Namespace: "c1", Name: "w", UID: "u"}, "update_request"},
		"gone":               {cloudevents.ManifestBundles, broker.Ref{Namespace: "c1", Name: "x", UID: "v"}, "delete_request"},
		"created again":      {cloudevents.ManifestBundles, broker.Ref{Namespace: "c1", Name: "w", UID: "before"}, "delete_request"},
		"unknown":            {cloudevents.ManifestBundles, broker.Ref{UID: "v"}, "delete_request"},
		"of another cluster": {cloudevents.SigningRequests, broker.Ref{Name: "r"}, "delete_request"},
	} {
		got := event(test.dataType, test.ref)
		if !strings.HasSuffix(got.Type, test.want) || got.Text("resourceid") == "" && test.ref.UID != "" || got.Text("clustername") != "c1" ||
			(test.want == "delete_request") != (got.Extensions["deletiontimestamp"] != nil) {
			t.Errorf("%s: %+v", name, got)
		}
		if name == "of another cluster" && strings.Contains(string(got.Data), "labels") {
			t.Errorf("%s: it has the data %s", name, got.Data)
		}
	}
}

// GR-08: changes are told to the cluster that they are of; of works, the agent's own status is none.
func TestChanges(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	source, _ := h.services[cloudevents.ManifestBundles].(broker.Source)
	for range 2 {
		if err := source.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	work := func(version string, generation int64) *workv1.ManifestWork {
		return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w", UID: "u", ResourceVersion: version,
			Generation: generation}}
	}
	h.informer.Add(work("1", 1))
	h.informer.Update(work("1", 1), work("2", 1))
	h.informer.Update(work("2", 1), work("3", 2))
	h.informer.Delete(work("3", 2))
	var told []string
	for _, change := range h.told {
		told = append(told, change.Cluster+" "+string(change.Action))
	}
	if want := []string{"c1 create_request", "c1 update_request", "c1 delete_request"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// GR-07: what the hub decides about a cluster has the rights of its agent reviewed, and a heartbeat does not.
func TestReview(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	source, _ := h.services[cloudevents.ManagedClusters].(broker.Source)
	for range 2 {
		if err := source.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cluster := func(version string, change func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", UID: types.UID("u"), ResourceVersion: version}}
		c.Spec.HubAcceptsClient = true
		if change != nil {
			change(c)
		}
		return c
	}
	h.informer.Update(cluster("1", nil), cluster("2", func(c *clusterv1.ManagedCluster) { c.Labels = map[string]string{"a": "b"} }))
	if len(h.reviewed) > 0 {
		t.Errorf("reviewed %v for a label", h.reviewed)
	}
	for name, change := range map[string]func(*clusterv1.ManagedCluster){
		"denied":   func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false },
		"deleting": func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
		"cut off": func(c *clusterv1.ManagedCluster) {
			c.Annotations = map[string]string{"capstan.io/credentials-not-before": "2026-11-25T01:02:03Z"}
		},
	} {
		before := len(h.reviewed)
		h.informer.Update(cluster("1", nil), cluster("2", change))
		if len(h.reviewed) != before+1 {
			t.Errorf("%s: reviewed %v", name, h.reviewed)
		}
	}
	h.informer.Delete(cluster("2", nil))
	if !slices.Equal(h.reviewed, []string{"c1", "c1", "c1", "c1"}) {
		t.Errorf("reviewed %v", h.reviewed)
	}
}

// CE-05: a cluster has the versions of its own resources: generations of works, with whether they are reported, and resource versions of
// others.
func TestVersions(t *testing.T) {
	t.Parallel()
	ours, theirs := request("c1"), request("c2")
	ours.UID, theirs.Name = "ours", "theirs"
	reported := func(generation int64) workv1.ManifestWorkStatus {
		return workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{Type: "Applied", ObservedGeneration: generation}}}
	}
	h := newHub(t, ours, theirs,
		&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w", UID: "u", Generation: 3}, Status: reported(2)},
		&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "x", UID: "reported", Generation: 3}, Status: reported(3)},
		&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c2", Name: "w", UID: "v", Generation: 4}})
	for dataType, want := range map[cloudevents.DataType]map[types.UID]bool{
		cloudevents.SigningRequests: {"ours": false}, cloudevents.ManifestBundles: {"u": true, "reported": false},
	} {
		source, _ := h.services[dataType].(broker.Catalogue)
		versions, err := source.Versions(t.Context(), "c1")
		if err != nil {
			t.Fatal(err)
		}
		existing, err := source.Existing(t.Context(), "c1")
		if err != nil {
			t.Fatal(err)
		}
		unreported := map[types.UID]bool{}
		for _, version := range versions {
			unreported[version.UID] = version.Unreported
			if version.Version == 0 || existing[version.UID] != version.Version {
				t.Errorf("%s: %s has the version %d, and %d on the API", dataType, version.UID, version.Version, existing[version.UID])
			}
		}
		if !maps.Equal(unreported, want) || len(existing) != len(want) {
			t.Errorf("%s: unreported %v, existing %v, want %v", dataType, unreported, existing, want)
		}
	}
}
