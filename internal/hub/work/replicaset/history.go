package replicaset

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// longestHistory is how many revisions are listed. It is more than keptTemplates and the present one.
	longestHistory = 10
	// keptTemplates is how many templates of good revisions are kept.
	keptTemplates = 5
	// templateType is the type of the Secrets with templates. They are Secrets because manifests may contain Secrets.
	templateType corev1.SecretType = "capstan.io/manifestworkreplicaset-revision"
	// templateKey is the key of the template in its Secret, as compressed JSON.
	templateKey = "template"
)

// revision is a present or former template of the set, as the annotation fleet.AnnotationRevisions of the set lists it.
type revision struct {
	// Number counts from 1.
	Number int `json:"revision"`
	// Hash is that of the template. It names the Secret with the template and protects its content: users who may write Secrets cannot
	// thereby write to clusters.
	Hash string `json:"hash"`
	// Executor is the identity that applied the works of this template. Earlier versions of the hub did not record it, and allowed users
	// to write the annotation.
	Executor string `json:"executor,omitempty"`
	// State is empty while the revision is rolled out.
	State revisionState `json:"state,omitempty"`
	// Message is why the revision has failed.
	Message string `json:"message,omitempty"`
}

type revisionState string

const (
	good   revisionState = "Good"
	failed revisionState = "Failed"
)

// history are the revisions of a set, the present one last.
type history []revision

// historyOf reads the history of a set, and starts a revision if the template is new. Revisions that cannot be read are dropped, as are the
// oldest without a kept template if there are too many.
func historyOf(set *workv1alpha1.ManifestWorkReplicaSet) (history, error) {
	var h history
	if json.Unmarshal([]byte(set.Annotations[fleet.AnnotationRevisions]), &h) != nil {
		h = nil
	}
	content, err := json.Marshal(set.Spec.ManifestWorkTemplate)
	if err != nil {
		return nil, fmt.Errorf("write the template of ManifestWorkReplicaSet %s/%s as JSON: %w", set.Namespace, set.Name, err)
	}
	hash := hashOf(content)
	if len(h) == 0 || h.current().Hash != hash {
		number := 1
		if len(h) > 0 {
			number = h.current().Number + 1
		}
		h = append(h, revision{Number: number, Hash: hash})
	}
	h.current().Executor = executorOf(&set.Spec.ManifestWorkTemplate)
	return h.trimmed(), nil
}

// trimmed drops the oldest revisions beyond longestHistory, except the present one and those whose templates are kept: however many others
// follow, there is a revision to roll back to.
func (h history) trimmed() history {
	surplus, kept := len(h)-longestHistory, h.kept()
	left := make(history, 0, len(h))
	for i, r := range h {
		if newest, isKept := kept[r.Hash]; surplus > 0 && i < len(h)-1 && (!isKept || newest != i) {
			surplus--
			continue
		}
		left = append(left, r)
	}
	return left
}

// kept returns where the revisions are whose templates are kept, by the hashes of these: the newest good ones.
func (h history) kept() map[string]int {
	kept := map[string]int{}
	for i, r := range slices.Backward(h) {
		if _, found := kept[r.Hash]; !found && r.State == good && len(kept) < keptTemplates {
			kept[r.Hash] = i
		}
	}
	return kept
}

// executorOf returns the identity that applies the works of a template.
func executorOf(template *workv1.ManifestWorkSpec) string {
	if template.Executor == nil {
		return fleet.NoExecutor
	}
	account := ptr.Deref(template.Executor.Subject.ServiceAccount, workv1.ManifestWorkSubjectServiceAccount{})
	return fleet.ServiceAccountUser(account.Namespace, account.Name)
}

func (h history) current() *revision { return &h[len(h)-1] }

// lastGood returns the revision to roll back to, or nil.
func (h history) lastGood() *revision {
	for i := len(h) - 2; i >= 0; i-- {
		if h[i].State == good && h[i].Hash != h.current().Hash {
			return &h[i]
		}
	}
	return nil
}

// write stores the history in the set. It changes nothing else.
func (h history) write(ctx context.Context, c client.Client, set *workv1alpha1.ManifestWorkReplicaSet) error {
	content, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if set.Annotations[fleet.AnnotationRevisions] == string(content) {
		return nil
	}
	before := set.DeepCopy()
	set.Annotations = merged(set.Annotations, map[string]string{fleet.AnnotationRevisions: string(content)})
	if err := c.Patch(ctx, set, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write the revisions of ManifestWorkReplicaSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return nil
}

// templates keeps the templates of revisions.
type templates struct{ client.Client }

// keep stores the template of the set, and deletes those that no rollback needs.
func (t templates) keep(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, h history) error {
	content, err := json.Marshal(set.Spec.ManifestWorkTemplate)
	if err != nil {
		return err
	}
	packed, err := pack(content)
	if err != nil {
		return err
	}
	owner := metav1.NewControllerRef(set, workv1alpha1.GroupVersion.WithKind("ManifestWorkReplicaSet"))
	owner.BlockOwnerDeletion = ptr.To(false)
	err = t.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: templateName(set, hashOf(content)),
			OwnerReferences: []metav1.OwnerReference{*owner}},
		Immutable: ptr.To(true), Type: templateType, Data: map[string][]byte{templateKey: packed},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keep the template of ManifestWorkReplicaSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return t.prune(ctx, set, h)
}

// prune deletes the templates of good revisions that are no longer kept. It does so before these can be dropped from the history.
func (t templates) prune(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, h history) error {
	kept := h.kept()
	for _, r := range h {
		if _, isKept := kept[r.Hash]; isKept || r.State != good {
			continue
		}
		err := t.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: templateName(set, r.Hash)}})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("let go of revision %d of ManifestWorkReplicaSet %s/%s: %w", r.Number, set.Namespace, set.Name, err)
		}
	}
	return nil
}

// lostTemplateError is why a template cannot be read, if another attempt would not help.
type lostTemplateError struct{ error }

// load reads the template of a revision, or returns a lostTemplateError. The hash has to match the revision. The executor has to be the
// present one, for which admission has checked that the user may use it.
func (t templates) load(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, r *revision) (*workv1.ManifestWorkSpec, error) {
	switch r.Executor {
	case executorOf(&set.Spec.ManifestWorkTemplate):
	case "":
		return nil, &lostTemplateError{fmt.Errorf("an earlier version of the hub has noted revision %d, without its executor", r.Number)}
	default:
		return nil, &lostTemplateError{fmt.Errorf("the executor of revision %d is another one: %s", r.Number, r.Executor)}
	}
	secret := &corev1.Secret{}
	if err := t.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: templateName(set, r.Hash)}, secret); apierrors.IsNotFound(err) {
		return nil, &lostTemplateError{err}
	} else if err != nil {
		return nil, err
	}
	content, err := unpack(secret.Data[templateKey])
	if err != nil {
		return nil, &lostTemplateError{err}
	}
	if hashOf(content) != r.Hash {
		return nil, &lostTemplateError{fmt.Errorf("the Secret %s does not hold the template of revision %d any more", secret.Name, r.Number)}
	}
	template := &workv1.ManifestWorkSpec{}
	if err := json.Unmarshal(content, template); err != nil {
		return nil, &lostTemplateError{err}
	}
	if !equality.Semantic.DeepEqual(template.Executor, set.Spec.ManifestWorkTemplate.Executor) {
		return nil, &lostTemplateError{fmt.Errorf("the executor of revision %d is another one", r.Number)}
	}
	return template, nil
}

// templateName returns the name of the Secret with a template of the set.
func templateName(set *workv1alpha1.ManifestWorkReplicaSet, hash string) string {
	const longestName, digits = 200, 16
	return set.Name[:min(len(set.Name), longestName)] + "-" + hashOf([]byte(set.Name))[:digits/2] + "-" + hash[:min(len(hash), digits)]
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func pack(content []byte) ([]byte, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// unpack bounds what it unpacks: a few bytes can expand to very many.
func unpack(packed []byte) ([]byte, error) {
	const largest = 4 << 20
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, largest))
}
