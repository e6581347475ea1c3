package resource

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
)

var now = time.Date(2026, 11, 25, 1, 2, 3, 0, time.UTC)

var updateOfCluster = cloudevents.Type{DataType: cloudevents.ManagedClusters, SubResource: cloudevents.Spec, Action: cloudevents.Update}

// CE-02: an event has the resource as data, and extensions that identify it and its version.
func TestEncode(t *testing.T) {
	t.Parallel()
	deletedAt := metav1.NewTime(now.Add(-time.Minute).Local())
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", UID: "uid-1", ResourceVersion: "98765432100",
		DeletionTimestamp: &deletedAt, Annotations: map[string]string{"logging.open-cluster-management.io/op-id": "42", "a": "b"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	before := cluster.DeepCopy()
	event, err := Encode("kube", updateOfCluster, "c1", cluster, now)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(cluster, before) {
		t.Error("the resource has changed")
	}
	want := map[string]any{"clustername": "c1", "resourceid": "uid-1", "resourceversion": "98765432100", "deletiontimestamp": deletedAt.Time,
		"logtracing": `{"logging.open-cluster-management.io/op-id":"42"}`}
	if !reflect.DeepEqual(event.Extensions, want) {
		t.Errorf("extensions are %v, want %v", event.Extensions, want)
	}
	if data := string(event.Data); !strings.Contains(data, `"kind":"ManagedCluster","apiVersion":"cluster.open-cluster-management.io/v1"`) ||
		strings.Contains(data, "managedFields") {
		t.Errorf("data is %s", data)
	}
	got := &clusterv1.ManagedCluster{}
	if err := Decode(event, got); err != nil || got.UID != cluster.UID || !got.DeletionTimestamp.Equal(&deletedAt) {
		t.Errorf("read back: %+v, %v", got, err)
	}
	if version, err := Version(got); version != 98765432100 || err != nil {
		t.Errorf("version %d, %v", version, err)
	}
}

// CE-02: what is about to be created is identified by its name; what is gone has a time of deletion.
func TestEncodeOfNewAndGone(t *testing.T) {
	t.Parallel()
	eventType := updateOfCluster
	eventType.Action = cloudevents.Delete
	event, err := Encode("kube", eventType, "c1", &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"clustername": "c1", "resourceid": "c1", "deletiontimestamp": now}
	if !reflect.DeepEqual(event.Extensions, want) {
		t.Errorf("extensions are %v, want %v", event.Extensions, want)
	}
}

// GR-08: data of another kind than the type of the event is refused, and so is a kind that has no form of its own.
func TestOtherKinds(t *testing.T) {
	t.Parallel()
	event, err := Encode("kube", updateOfCluster, "c1", &clusterv1.ManagedCluster{}, now)
	if err != nil {
		t.Fatal(err)
	}
	event.Type = cloudevents.Type{DataType: cloudevents.Leases, SubResource: cloudevents.Spec, Action: cloudevents.Update}.String()
	if err := Decode(event, &clusterv1.ManagedCluster{}); err == nil || !strings.Contains(err.Error(), "Kind=Lease") {
		t.Errorf("a ManagedCluster as Lease: %v", err)
	}
	event.Data = nil
	if err := Decode(event, &clusterv1.ManagedCluster{}); err == nil || !strings.Contains(err.Error(), "no data") {
		t.Errorf("no data: %v", err)
	}
	works := cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: cloudevents.Spec, Action: cloudevents.Update}
	if _, err := Encode("kube", works, "c1", &corev1.Secret{}, now); err == nil {
		t.Error("a Secret is encoded as a manifest bundle")
	}
}
