package celselector

import (
	"encoding/json"
	"math"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	kubernetes "k8s.io/apiserver/pkg/cel/environment"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

const variable = "managedCluster"

var apiVersion = clusterv1.GroupVersion.String()

// environment is built once, as that takes far longer than to compile an expression.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	cluster := cel.MapType(cel.StringType, cel.DynType)
	return kubernetes.MustBaseEnvSet(kubernetes.DefaultCompatibilityVersion()).StoredExpressionsEnv().Extend(
		cel.Variable(variable, cluster),
		cel.Function("scores", cel.MemberOverload("managed_cluster_scores",
			[]*cel.Type{cluster, cel.StringType}, cel.ListType(cel.DynType), cel.BinaryBinding(scoresOf))),
		cel.Function("parseJSON", cel.MemberOverload("string_parse_json",
			[]*cel.Type{cel.StringType}, cel.DynType, cel.UnaryBinding(parseJSON))),
	)
})

// clusterView has the fields of a ManagedCluster as its JSON has them, without copying large ones.
type clusterView struct {
	APIVersion string                          `json:"apiVersion"`
	Kind       string                          `json:"kind"`
	Metadata   *metav1.ObjectMeta              `json:"metadata"`
	Spec       *clusterv1.ManagedClusterSpec   `json:"spec"`
	Status     *clusterv1.ManagedClusterStatus `json:"status"`
}

// clusterValue is the value of managedCluster. Fields are converted when an expression reads them, as most expressions read one label.
type clusterValue struct {
	traits.Mapper
	scores Scores

	listName string // of list
	list     ref.Val
}

func newClusterValue(cluster *clusterv1.ManagedCluster, scores Scores) ref.Val {
	value, ok := common.SchemalessTypedToVal(clusterView{
		APIVersion: apiVersion, Kind: "ManagedCluster", Metadata: &cluster.ObjectMeta, Spec: &cluster.Spec, Status: &cluster.Status,
	}).(traits.Mapper)
	if !ok {
		return types.NewErr("%s is no map", variable)
	}
	return &clusterValue{Mapper: value, scores: scores}
}

// activation resolves the variables of an expression.
type activation struct{ cluster ref.Val }

// ResolveName implements cel.Activation.
func (a activation) ResolveName(name string) (any, bool) { return a.cluster, name == variable }

// Parent implements cel.Activation.
func (a activation) Parent() cel.Activation { return nil }

func scoresOf(receiver, name ref.Val) ref.Val {
	cluster, ok := receiver.(*clusterValue)
	if !ok {
		return types.NewErr("scores is a function of %s alone", variable)
	}
	text, ok := name.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(name)
	}
	return cluster.scoreList(string(text))
}

// scoreList returns the items of an AddOnPlacementScore. It keeps one list, as a loop mostly reads the same one again.
func (c *clusterValue) scoreList(name string) ref.Val {
	if c.list == nil || c.listName != name {
		c.listName, c.list = name, newScoreList(c.scores(name))
	}
	return c.list
}

func newScoreList(scores []clusterv1alpha1.AddOnPlacementScoreItem) ref.Val {
	items := make([]ref.Val, 0, len(scores))
	for _, item := range scores {
		items = append(items, types.NewRefValMap(types.DefaultTypeAdapter, map[ref.Val]ref.Val{
			types.String("name"):     types.String(item.Name),
			types.String("value"):    types.Int(item.Value),
			types.String("quantity"): apiservercel.Quantity{Quantity: resource.NewQuantity(int64(item.Value), resource.DecimalSI)},
		}))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, items)
}

func parseJSON(text ref.Val) ref.Val {
	var value any
	if err := json.Unmarshal([]byte(text.(types.String)), &value); err != nil {
		return types.NewErr("parseJSON: %v", err)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// functionCosts has the costs of the functions that Capstan adds.
type functionCosts struct{}

// CallCost returns the cost of one call; nil for other functions.
func (functionCosts) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	const (
		perCall = 10
		perItem = 1   // of a list of scores: a map with three entries
		perByte = 0.2 // building a value takes twice as long as reading a string, which is 0.1
	)
	switch function {
	case "scores":
		cost := perCall + perItem*sizeOf(result)
		return &cost
	case "parseJSON":
		text, _ := args[0].(types.String)
		cost := uint64(math.Ceil(float64(len(text)) * perByte))
		return &cost
	}
	return nil
}

// sizeOf is the size of a list; 0 of an error.
func sizeOf(value ref.Val) uint64 {
	list, ok := value.(traits.Lister)
	if !ok {
		return 0
	}
	size, _ := list.Size().(types.Int)
	return uint64(size) //nolint:gosec // a size is not negative
}
