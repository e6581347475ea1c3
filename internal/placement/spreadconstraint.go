package placement

import (
	"fmt"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// spreadConstraint is one of spec.spreadPolicy.spreadConstraints. A topology of the constraint is one value of its label or claim among
// the candidates. The skew is how many more clusters are selected of one topology than of the one with the fewest.
type spreadConstraint struct {
	index   int // in the spec
	byClaim bool
	key     string
	maxSkew int
	strict  bool // whenUnsatisfiable is DoNotSchedule
}

func parseConstraint(i int, term clusterv1beta1.SpreadConstraintsTerm) (spreadConstraint, *Misconfiguration) {
	const field = "spec.spreadPolicy.spreadConstraints[%d]"
	parsed := spreadConstraint{index: i, key: term.TopologyKey, maxSkew: int(term.MaxSkew)}
	if parsed.maxSkew == 0 {
		parsed.maxSkew = 1
	}
	switch {
	case parsed.key == "":
		return parsed, misconfigured(partSpread, field+".topologyKey: must name a label or a claim", i)
	case parsed.maxSkew < 0:
		return parsed, misconfigured(partSpread, field+".maxSkew: %d must be 1 or more", i, term.MaxSkew)
	}
	switch term.TopologyKeyType {
	case clusterv1beta1.TopologyKeyTypeLabel:
	case clusterv1beta1.TopologyKeyTypeClaim:
		parsed.byClaim = true
	default:
		return parsed, misconfigured(partSpread, field+".topologyKeyType: %q is neither %s nor %s", i, term.TopologyKeyType,
			clusterv1beta1.TopologyKeyTypeLabel, clusterv1beta1.TopologyKeyTypeClaim)
	}
	switch term.WhenUnsatisfiable {
	case "", clusterv1beta1.ScheduleAnyway:
	case clusterv1beta1.DoNotSchedule:
		parsed.strict = true
	default:
		return parsed, misconfigured(partSpread, field+".whenUnsatisfiable: %q is neither %s nor %s", i, term.WhenUnsatisfiable,
			clusterv1beta1.DoNotSchedule, clusterv1beta1.ScheduleAnyway)
	}
	return parsed, nil
}

// topologyOf returns the value that a cluster has of the label or claim.
func (k *spreadConstraint) topologyOf(c *cluster) (value string, known bool) {
	of := c.labels()
	if k.byClaim {
		of = c.claims
	}
	value, known = of[k.key]
	return value, known
}

// field is the path of the constraint in the Placement.
func (k *spreadConstraint) field() string {
	return fmt.Sprintf("spec.spreadPolicy.spreadConstraints[%d]", k.index)
}

func (k *spreadConstraint) String() string {
	kind := "label"
	if k.byClaim {
		kind = "claim"
	}
	return fmt.Sprintf("%s %s", kind, k.key)
}

// maxConstraints is the limit that the schema of Placements has.
const maxConstraints = 8
