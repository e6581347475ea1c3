package placement

// resourceAllocatable prefers clusters with much of a resource: 100 for the candidate with the most, -100 for the one with the least.
type resourceAllocatable struct {
	resource int // index of resourceNames
}

func (r resourceAllocatable) score(c *cluster, in *scoreInput) (score int64, expired bool) {
	amount, of := c.allocatable[r.resource], in.ranges[r.resource]
	switch {
	case !amount.known:
		return 0, false
	case of.max == of.min:
		return 100, false
	}
	return int64(((amount.value-of.min)/(of.max-of.min) - 0.5) * 200), false
}

// resourceRange is the least and the most of a resource that candidates have.
type resourceRange struct {
	min, max float64
	known    bool // whether any candidate reports the resource
}

func (r *resourceRange) include(m resourceAmount) {
	switch {
	case !m.known:
	case !r.known:
		*r = resourceRange{min: m.value, max: m.value, known: true}
	default:
		r.min, r.max = min(r.min, m.value), max(r.max, m.value)
	}
}

// resourceRanges is the range of each resource of resourceNames. Those that no prioritizer uses are left empty.
type resourceRanges [len(resourceNames)]resourceRange

// include extends the ranges of the resources that the profile uses.
func (r *resourceRanges) include(c *cluster, profile *profile) {
	for i, used := range profile.usesResource {
		if used {
			r[i].include(c.allocatable[i])
		}
	}
}

// computeRanges computes the ranges over all candidates.
func (cs *candidateSet) computeRanges(profile *profile) resourceRanges {
	var ranges resourceRanges
	if !profile.readsResources() {
		return ranges
	}
	for i := range cs.matched {
		if cs.matched[i].tolerated {
			ranges.include(cs.matched[i].cluster, profile)
		}
	}
	return ranges
}
