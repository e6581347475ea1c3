package brokerapi

import (
	"strconv"
	"sync"
	"time"
)

// sequence makes the numbers by which a hub puts statuses in order. As in the snowflakes of others, the time in milliseconds stands in
// front, so that they go on after a restart.
type sequence struct {
	mu   sync.Mutex
	last int64
	now  func() time.Time
}

const (
	// snowflakeEpoch is the moment from which the time is counted, in milliseconds since 1970.
	snowflakeEpoch = 1288834974657
	// snowflakeBits are behind the time.
	snowflakeBits = 22
)

func (s *sequence) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last+1, (s.now().UnixMilli()-snowflakeEpoch)<<snowflakeBits)
	return strconv.FormatInt(s.last, 10)
}
