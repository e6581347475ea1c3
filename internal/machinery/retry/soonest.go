package retry

import "time"

// Soonest is the shortest of delays, such as of results of reconciles, where 0 is never; 0 if all are.
func Soonest(delays ...time.Duration) (soonest time.Duration) {
	for _, delay := range delays {
		if soonest == 0 || delay != 0 && delay < soonest {
			soonest = delay
		}
	}
	return soonest
}
