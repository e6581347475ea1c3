// Package score is for add-ons that score their cluster in an AddOnPlacementScore, by which placements rank clusters.
package score

const (
	// Min is the score of a cluster with the least, or nothing, of what is scored.
	Min = -100
	// Max is the score of a cluster with the most of what is scored.
	Max = 100
)

// Normalize maps a value to a score: least and what is below it to Min, most and what is above it to Max, and what is between them in
// proportion, rounded towards 0. The score of a value that is not a number is Min. Least and most have to be finite, and the same on all
// clusters, or the scores cannot be compared.
func Normalize(value, least, most float64) int32 {
	switch {
	case value >= most && value > least:
		return Max
	case value > least:
		return int32((Max-Min)*((value-least)/(most-least)) + Min)
	default:
		return Min
	}
}
