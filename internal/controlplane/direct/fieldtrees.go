package direct

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/lru"
)

// rememberedTrees is how many trees of managed fields are looked for among those that come, and largestTree how many fields each of them
// has at most: a client may write larger ones, each another, which would be kept.
const (
	rememberedTrees = 4096
	largestTree     = 1000
)

// sharingFields is the codec of a watch cache. The objects that it decodes share the trees of their managed fields, which are read and
// never changed. In custom resources these are maps of maps, larger than the rest of a ManagedCluster, and the same in thousands of them
// and in each of their versions.
type sharingFields struct {
	runtime.Codec
	trees *fieldTrees
}

// Decode implements runtime.Decoder.
func (s sharingFields) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	object, kind, err := s.Codec.Decode(data, defaults, into)
	if custom, is := object.(*unstructured.Unstructured); is && err == nil {
		s.trees.share(custom)
	}
	return object, kind, err
}

// fieldTrees has trees of managed fields, by a hash of what is in them.
type fieldTrees struct {
	seed   maphash.Seed
	recent *lru.Cache
}

func newFieldTrees() *fieldTrees {
	return &fieldTrees{seed: maphash.MakeSeed(), recent: lru.New(rememberedTrees)}
}

// share replaces the trees of an object by equal ones that other objects have.
func (t *fieldTrees) share(object *unstructured.Unstructured) {
	metadata, _ := object.Object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	for _, entry := range entries {
		manager, _ := entry.(map[string]any)
		if tree, is := manager["fieldsV1"].(map[string]any); is {
			manager["fieldsV1"] = t.shared(tree)
		}
	}
}

func (t *fieldTrees) shared(tree map[string]any) map[string]any {
	hash, fields := t.hash(tree)
	if fields > largestTree {
		return tree
	}
	if known, found := t.recent.Get(hash); found {
		if known, _ := known.(map[string]any); equalTrees(known, tree) {
			return known
		}
	}
	t.recent.Add(hash, tree)
	return tree
}

// hash is that of a tree, in whichever order its fields come, and says how many these are.
func (t *fieldTrees) hash(tree map[string]any) (sum uint64, fields int) {
	type field struct {
		name  string
		below uint64
	}
	for name, value := range tree {
		below, _ := value.(map[string]any)
		hash, more := t.hash(below)
		sum += maphash.Comparable(t.seed, field{name, hash})
		fields += 1 + more
	}
	return sum, fields
}

// equalTrees reports whether two trees have the same fields, and nothing but fields.
func equalTrees(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	for name, value := range a {
		belowA, isTree := value.(map[string]any)
		belowB, areTrees := b[name].(map[string]any)
		if !isTree || !areTrees || !equalTrees(belowA, belowB) {
			return false
		}
	}
	return true
}
