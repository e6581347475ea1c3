package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"k8s.io/utils/clock"
)

const (
	// spaceInterval is how often the size of the database is checked. etcd has no event for it.
	spaceInterval = time.Minute
	// defragmentInterval is the least time between two defragmentations, each of which stops reads and writes for some seconds, unless the
	// database is full.
	defragmentInterval = time.Hour
	// fullInterval is that of a database which is full, after something was deleted, and that at which its history is dropped.
	fullInterval = 5 * time.Minute
	// leastDefragmented is the size below which free space in the file is not worth a stop.
	leastDefragmented = 512 << 20
)

// KeepSpace maintains the size of the database until ctx ends: it gives free space back, says when the database gets full, and has one
// that was full take writes again as soon as there is room. The API server compacts the history.
func (s *Server) KeepSpace(ctx context.Context, clk clock.WithTicker) {
	ticker := clk.NewTicker(spaceInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			s.checkSpace(ctx, clk.Now())
		}
	}
}

func (s *Server) checkSpace(ctx context.Context, now time.Time) {
	if s.full() || s.InReserve() {
		if err := s.makeRoom(ctx, now); err != nil && ctx.Err() == nil {
			s.logger.Error(err, "The storage of the hub is full: it takes deletions, and nothing that is new or becomes larger. Delete what is not needed, "+
				"or start the hub with a larger --embedded-etcd-quota-bytes")
		}
		return
	}
	size, used := s.sizes()
	s.warnOfSize(used)
	if !worthDefragmenting(size, used, s.quota) || now.Sub(s.defragmented) < defragmentInterval {
		return
	}
	err := s.defragment()
	if errors.Is(err, errSnapshots) {
		return
	}
	s.defragmented = now
	if err != nil {
		s.logger.Error(err, "The storage of the hub keeps free space that it does not use", "bytes", size-used)
	}
}

// sizes are those of the file and of what is used of it.
func (s *Server) sizes() (size, used int64) {
	backend := s.etcd.Server.Backend()
	return backend.Size(), backend.SizeInUse()
}

// worthDefragmenting reports whether so much of the file is free that it pays to stop for it. What counts for the quota is the file, so
// near the quota less is enough.
func worthDefragmenting(size, used, quota int64) bool {
	free := size - used
	nearlyFull := size > quota/10*8
	return size >= leastDefragmented && free > size/2 || nearlyFull && free > size/5
}

// warnOfSize says once that the quota is nearly used up, and again when it was less meanwhile.
func (s *Server) warnOfSize(used int64) {
	nearlyFull := used > s.quota/10*8
	if nearlyFull && !s.warned {
		s.logger.Error(errNearlyFull, "Delete what is not needed, or start the hub with a larger --embedded-etcd-quota-bytes",
			"usedBytes", used, "quotaBytes", s.quota)
	}
	s.warned = nearlyFull
}

var errNearlyFull = errors.New("the storage of the hub is nearly full; it takes hardly any writes but deletions when it is")

// InReserve reports whether so much of the quota is in use that the rest is to be left for what makes room: a tenth, as etcd itself refuses
// also the writes by which objects are deleted when nothing is left.
func (s *Server) InReserve() bool {
	_, used := s.sizes()
	return used > s.quota/10*9
}

// full reports whether etcd refuses writes, which it does from the first one that did not fit until its alarm is disarmed.
func (s *Server) full() bool {
	for _, alarm := range s.etcd.Server.Alarms() {
		if alarm.Alarm == pb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

// makeRoom drops the history, which holds what was deleted, and has an etcd that refuses writes take them again as soon as there is any
// room below the quota: the reserve is for those by which objects are deleted.
func (s *Server) makeRoom(ctx context.Context, now time.Time) error {
	full := s.full()
	if err := s.shrink(ctx, now, full); err != nil {
		return err
	}
	size, used := s.sizes()
	if full && size >= s.quota {
		return fmt.Errorf("its database has %d bytes of %d", size, s.quota)
	}
	if full {
		if err := s.disarm(ctx); err != nil {
			return fmt.Errorf("take writes again: %w", err)
		}
	}
	if s.InReserve() {
		return fmt.Errorf("%d bytes of %d are in use", used, s.quota)
	}
	s.logger.Info("The storage of the hub has room again and takes all writes", "usedBytes", used, "quotaBytes", s.quota)
	return nil
}

// shrink drops the history, at intervals. If the database is full and has changed, it also gives back what is free in the file.
func (s *Server) shrink(ctx context.Context, now time.Time, full bool) error {
	revision := s.etcd.Server.KV().Rev()
	givesBack := full && revision != s.shrunkAt && now.Sub(s.defragmented) >= fullInterval
	if !givesBack && now.Sub(s.compacted) < fullInterval {
		return nil
	}
	if err := s.compact(ctx, revision); err != nil {
		return err
	}
	s.compacted = now
	if !givesBack {
		return nil
	}
	if err := s.defragment(); err != nil {
		return err
	}
	s.shrunkAt, s.defragmented = revision, now
	return nil
}

// compact drops the history before a revision.
func (s *Server) compact(ctx context.Context, revision int64) error {
	compaction := &pb.CompactionRequest{Revision: revision, Physical: true}
	if _, err := s.etcd.Server.Compact(ctx, compaction); err != nil && !errors.Is(err, mvcc.ErrCompacted) {
		return fmt.Errorf("compact the history: %w", err)
	}
	return nil
}

// disarm ends the alarm for which etcd refuses writes.
func (s *Server) disarm(ctx context.Context) error {
	_, err := s.etcd.Server.Alarm(ctx, &pb.AlarmRequest{
		MemberID: uint64(s.etcd.Server.MemberID()), Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE,
	})
	return err
}

// errSnapshots is that a defragmentation has to wait.
var errSnapshots = errors.New("a backup is being read, and the space that is free is given back after that")

// defragment writes the file again, without the free space in it, unless snapshots are open.
func (s *Server) defragment() error {
	if !s.reading.TryLock() {
		return errSnapshots
	}
	defer s.reading.Unlock()
	before, _ := s.sizes()
	if err := s.etcd.Server.Defragment(); err != nil {
		return fmt.Errorf("defragment the database: %w", err)
	}
	after, _ := s.sizes()
	s.logger.Info("Defragmented the storage of the hub", "bytesBefore", before, "bytesAfter", after)
	return nil
}
