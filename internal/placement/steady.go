package placement

// steady prefers the clusters that the placement has selected already.
type steady struct{}

func (steady) score(c *cluster, in *scoreInput) (score int64, expired bool) {
	if in.selected[c] {
		return 100, false
	}
	return 0, false
}
