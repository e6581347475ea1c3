package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// A Job runs once: one that has ended is not made again when it is missing, be it that its TTL or a user has removed it. An annotation of
// the AppliedManifestWork says which Jobs have ended, with a hash of their specs, so that it holds after a restart, too, and a changed Job
// runs.

var jobKind = schema.GroupKind{Group: "batch", Kind: "Job"}

// errEnded is that a Job is missing that has ended.
var errEnded = errors.New("the Job has ended and was removed")

// endedJobs are the hashes of the specs of Jobs that have ended, by namespace and name.
type endedJobs map[string]string

// endedJobsOf reads the annotation. What cannot be read names none.
func endedJobsOf(amw *workv1.AppliedManifestWork) (jobs endedJobs) {
	if json.Unmarshal([]byte(amw.Annotations[fleet.AnnotationEndedJobs]), &jobs) != nil {
		return nil
	}
	return jobs
}

// has reports whether the manifest is that of a Job that has ended.
func (e endedJobs) has(object *unstructured.Unstructured) bool {
	return len(e) > 0 && isJob(object) && e[jobName(object)] == specHash(object)
}

// mayBeOf are the Jobs that manifests may be about whose kind the cluster does not know now, or that cannot be read.
func (e endedJobs) mayBeOf(results []manifestResult) endedJobs {
	jobs := endedJobs{}
	for job, hash := range e {
		r := workv1.AppliedManifestResourceMeta{}
		r.Group = jobKind.Group
		r.Namespace, r.Name, _ = strings.Cut(job, "/")
		if mayStandFor(results, r) {
			jobs[job] = hash
		}
	}
	return jobs
}

func isJob(object *unstructured.Unstructured) bool {
	return object.GroupVersionKind().GroupKind() == jobKind
}

func jobName(object *unstructured.Unstructured) string {
	return object.GetNamespace() + "/" + object.GetName()
}

func specHash(object *unstructured.Unstructured) string {
	return manifest.Hash(&unstructured.Unstructured{Object: map[string]any{"spec": object.Object["spec"]}})
}

// recordEnded writes down which Jobs of the work have ended, as far as the observer has seen it, and forgets those that the work names no
// more. A Job that is being deleted counts as well: it cannot be applied any more, and was under this generation. What cannot be written
// holds in memory, and is written by a later pass.
func (c *Controller) recordEnded(ctx context.Context, amw *workv1.AppliedManifestWork, results []manifestResult) error {
	before := endedJobsOf(amw)
	jobs := before.mayBeOf(results)
	for i := range results {
		o := &results[i]
		if !o.resolved || o.manifest == nil || !isJob(o.manifest) {
			continue
		}
		name := jobName(o.manifest)
		if hash, ended := before[name]; ended {
			jobs[name] = hash
		}
		// What was read may be another Job of the name, or that of an earlier manifest.
		reading := c.Observer.Reading(amw.Name, o.object())
		if o.ended || reading != nil && o.applied && o.uid != "" && reading.Ended == o.uid {
			jobs[name] = specHash(o.manifest)
		}
	}
	if maps.Equal(before, jobs) {
		return nil
	}
	changed := amw.DeepCopy()
	if len(jobs) == 0 {
		delete(changed.Annotations, fleet.AnnotationEndedJobs)
	} else {
		encoded, err := json.Marshal(jobs)
		if err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, fleet.AnnotationEndedJobs, string(encoded))
	}
	if err := c.managed.Patch(ctx, changed, client.MergeFrom(amw)); err != nil {
		amw.Annotations = changed.Annotations
		return fmt.Errorf("write down which Jobs of AppliedManifestWork %s have ended: %w", amw.Name, err)
	}
	amw.ObjectMeta = changed.ObjectMeta
	return nil
}
