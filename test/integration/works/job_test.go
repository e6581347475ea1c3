package works

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// WK-17: a Job whose TTL has it removed is not made again, and runs again with another template.
func TestJobIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	const name = "job-runs-once"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	job := func(image string) string {
		return fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"namespace":%q,"name":"once"},"spec":{"ttlSecondsAfterFinished":2,
			"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":%q}]}}}}`, ns, image)
	}
	jobs, err := m.Watch(t.Context(), &batchv1.JobList{}, client.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	defer jobs.Stop()
	w := framework.Work(name, name, job("first"))
	framework.Create(t, h, w)
	made := 0
	for event := range env.Events(t, jobs) {
		if event.Type == watch.Added {
			made++
		}
		if event.Type == watch.Deleted {
			break
		}
	}
	change(t, h, w, func(spec *workv1.ManifestWorkSpec) { spec.Workload.Manifests = framework.RawManifests(job("second")) })
	for event := range env.Events(t, jobs) {
		if event.Type != watch.Added {
			continue
		}
		made++
		if image := event.Object.(*batchv1.Job).Spec.Template.Spec.Containers[0].Image; image == "second" {
			break
		}
	}
	if made != 2 {
		t.Errorf("the Job was made %d times, for two templates", made)
	}
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
}
