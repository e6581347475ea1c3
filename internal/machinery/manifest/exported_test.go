package manifest

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// WK-01: what an object carries that was exported from another cluster is not applied, and what users write is.
func TestDropExported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		manifest, want string
		dropped        []string
	}{
		"a Deployment": {
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","annotations":{"deployment.kubernetes.io/revision":"3","a":"b"}}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","annotations":{"a":"b"}}}`,
			[]string{"metadata.annotations[deployment.kubernetes.io/revision]"}},
		"annotations of another kind": {
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","annotations":{"deployment.kubernetes.io/revision":"3"}}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","annotations":{"deployment.kubernetes.io/revision":"3"}}}`, nil},
		"what kubectl applied last": {
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`,
			[]string{"metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]"}},
		"what a work has applied": {
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"applied-fields.capstan.io/h":"{}","a":"b"}}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"a":"b"}}}`,
			[]string{"metadata.annotations[applied-fields.capstan.io/h]"}},
		"a Job": {
			`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j","labels":{"app":"j","controller-uid":"u","job-name":"j"}},
			"spec":{"selector":{"matchLabels":{"batch.kubernetes.io/controller-uid":"u"}},
			"template":{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j"}},"spec":{}}}}`,
			`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j","labels":{"app":"j"}},"spec":{"template":{"metadata":{},"spec":{}}}}`,
			[]string{"metadata.labels.controller-uid", "metadata.labels.job-name", "spec.selector",
				"spec.template.metadata.labels[batch.kubernetes.io/controller-uid]", "spec.template.metadata.labels[batch.kubernetes.io/job-name]"}},
		"a Job with a selector of its own": {
			`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"manualSelector":true,"selector":{"matchLabels":{"controller-uid":"u"}}}}`,
			`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"manualSelector":true,"selector":{"matchLabels":{"controller-uid":"u"}}}}`,
			nil},
		"a Service of a cluster": {
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","uid":"u"},"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ports":[
			{"port":80,"nodePort":30000}]}}`,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","uid":"u"},"spec":{"ports":[{"port":80}]}}`,
			[]string{"spec.clusterIP", "spec.clusterIPs", "spec.ports[0].nodePort"}},
		"a Service that a user has written": {
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"type":"NodePort","clusterIP":"10.0.0.10","ports":[{"nodePort":30000}]}}`,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"type":"NodePort","clusterIP":"10.0.0.10","ports":[{"nodePort":30000}]}}`,
			nil},
		"a headless Service of a cluster": {
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","uid":"u"},"spec":{"clusterIP":"None","clusterIPs":["None"]}}`,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","uid":"u"},"spec":{"clusterIP":"None","clusterIPs":["None"]}}`, nil},
		"a Pod of a cluster": {
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","uid":"u"},"spec":{"nodeName":"n","volumes":[{"name":"data"},{"name":"kube-api-access-x"}],
			"containers":[{"name":"c","volumeMounts":[{"name":"kube-api-access-x"}]}]}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","uid":"u"},"spec":{"volumes":[{"name":"data"}],"containers":[{"name":"c"}]}}`,
			[]string{"spec.nodeName", "spec.volumes[kube-api-access-*]", "spec.containers[0].volumeMounts[kube-api-access-*]"}},
		"a Pod that a user has written": {
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n"}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n"}}`, nil},
		"a volume": {
			`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"v"},"spec":{"claimRef":{"name":"c","uid":"u","resourceVersion":"1"}}}`,
			`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"v"},"spec":{"claimRef":{"name":"c"}}}`,
			[]string{"spec.claimRef.uid", "spec.claimRef.resourceVersion"}},
		"a claim of a cluster": {
			`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c","uid":"u"},"spec":{"volumeName":"v"}}`,
			`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c","uid":"u"},"spec":{}}`, []string{"spec.volumeName"}},
		"a service account of a cluster": {
			`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a","uid":"u"},"secrets":[{"name":"a-token"}]}`,
			`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a","uid":"u"}}`, []string{"secrets"}},
		"nonsense": {
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","annotations":7},"spec":{"ports":["x"]}}`,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","annotations":7},"spec":{"ports":["x"]}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object, want := &unstructured.Unstructured{}, &unstructured.Unstructured{}
			err := errors.Join(json.Unmarshal([]byte(test.manifest), &object.Object), json.Unmarshal([]byte(test.want), &want.Object))
			if err != nil {
				t.Fatal(err)
			}
			dropped := DropExported(object)
			slices.Sort(dropped)
			slices.Sort(test.dropped)
			if !slices.Equal(dropped, test.dropped) {
				t.Errorf("dropped %q, want %q", dropped, test.dropped)
			}
			if diff := cmp.Diff(want.Object, object.Object); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
