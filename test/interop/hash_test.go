package interop

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ocmworkv1 "open-cluster-management.io/api/work/v1"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/statushash"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
)

// CE-06: a status has the hash that the SDK gives it, so that agents do not send again what sources have.
func TestHashOfSDK(t *testing.T) {
	t.Parallel()
	integer, text, raw := int64(1)<<60, "text", `{"a":1}`
	conditions := []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue, ObservedGeneration: 2, Reason: "Done",
		Message: "<all> & more", LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}}
	feedback := []workv1.FeedbackValue{
		{Name: "i", Value: workv1.FieldValue{Type: workv1.Integer, Integer: &integer}},
		{Name: "s", Value: workv1.FieldValue{Type: workv1.String, String: &text}},
		{Name: "j", Value: workv1.FieldValue{Type: workv1.JSONRaw, JSONRaw: &raw}},
	}
	meta := workv1.ManifestResourceMeta{Ordinal: 1, Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "n", Name: "c"}
	for name, status := range map[string]workv1.ManifestWorkStatus{
		"nothing":    {},
		"conditions": {Conditions: conditions},
		"manifests": {Conditions: conditions, ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{
			{ResourceMeta: meta, Conditions: conditions, StatusFeedbacks: workv1.StatusFeedbackResult{Values: feedback}},
			{}}}},
	} {
		data, err := json.Marshal(&status)
		if err != nil {
			t.Fatal(err)
		}
		ofSDK := &ocmworkv1.ManifestWork{}
		if err := json.Unmarshal(data, &ofSDK.Status); err != nil {
			t.Fatal(err)
		}
		want, err := statushash.StatusHash(ofSDK)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := cloudevents.HashStatus(&status); err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", name, got, err, want)
		}
	}
}
