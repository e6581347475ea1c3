package etcd

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const smallQuota = 4 << 20

// fill writes until the storage is full, over and over so many keys that start with one.
func fill(t *testing.T, s *Server, from, keys int) {
	t.Helper()
	c := s.Client()
	value := strings.Repeat("v", 64<<10)
	for i := range 1000 {
		_, err := c.Put(t.Context(), "k"+strconv.Itoa(from+i%keys), value)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		s.etcd.Server.Backend().ForceCommit() // etcd goes by the size of the file
	}
	t.Fatal("the storage is never full")
}

func takesWrites(t *testing.T, c *clientv3.Client) bool {
	t.Helper()
	_, err := c.Put(t.Context(), "small", "v")
	if err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	return err == nil
}

// SC-10: a storage that is full of history takes writes again by itself.
func TestHistoryMakesRoom(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: t.TempDir(), QuotaBytes: smallQuota})
	defer s.Close()
	c := s.Client()
	fill(t, s, 0, 1)
	if takesWrites(t, c) {
		t.Error("a full storage takes writes")
	}
	s.checkSpace(t.Context(), time.Now())
	if !takesWrites(t, c) {
		t.Error("it takes no writes although there is room")
	}
}

// While a backup is read, the storage goes on, and is not defragmented: that would wait for the backup, and everything else for that.
func TestNoDefragmentationOfSnapshots(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: t.TempDir(), QuotaBytes: smallQuota})
	defer s.Close()
	c := s.Client()
	fill(t, s, 0, 1)
	first, second := s.Snapshot(), s.Snapshot()
	now := time.Now()
	for _, open := range []interface{ Close() error }{first, second} {
		s.checkSpace(t.Context(), now)
		if _, err := c.Get(t.Context(), "k0"); err != nil || takesWrites(t, c) {
			t.Errorf("the storage does not answer, or takes writes: %v", err)
		}
		if err := open.Close(); err != nil {
			t.Error(err)
		}
	}
	s.checkSpace(t.Context(), now)
	if !takesWrites(t, c) {
		t.Error("it takes no writes although there is room and nothing is read any more")
	}
}

// SC-10: a storage that is full of objects says what to do, takes small writes, by which these are deleted, and has room again after that.
func TestDeletionsMakeRoom(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: t.TempDir(), QuotaBytes: smallQuota})
	defer s.Close()
	c := s.Client()
	var log strings.Builder
	s.logger = funcr.New(func(_, line string) { log.WriteString(line) }, funcr.Options{})
	now := time.Now()
	for from := 0; from < 10_000 && !s.InReserve(); from += 1000 {
		fill(t, s, from, 1000)
		now = now.Add(fullInterval)
		s.checkSpace(t.Context(), now)
	}
	if !s.InReserve() || !strings.Contains(log.String(), "--embedded-etcd-quota-bytes") {
		t.Errorf("it is not full, or does not say what to do: %s", log.String())
	}
	if !takesWrites(t, c) {
		t.Error("it takes no writes by which objects are deleted")
	}
	s.logger = logr.Discard()
	if _, err := c.Delete(t.Context(), "k", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	s.checkSpace(t.Context(), now.Add(fullInterval))
	if commitOften(t, s); s.InReserve() {
		t.Error("it has no room although all was deleted")
	}
}

// commitOften has the file know what is free in it: what a write frees is free after the next ones.
func commitOften(t *testing.T, s *Server) {
	t.Helper()
	for range 4 {
		if !takesWrites(t, s.Client()) {
			t.Error("it takes no writes")
		}
		s.etcd.Server.Backend().ForceCommit()
	}
}

// A storage in whose reserve there is history has room again by itself, without the stop of a defragmentation.
func TestHistoryLeavesTheReserve(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: t.TempDir(), QuotaBytes: smallQuota})
	defer s.Close()
	// Values of less than a page fit what the writes before them have freed, so that the file, which counts for the quota, has no gaps.
	value := strings.Repeat("v", 1<<10)
	for i := 0; i < 10_000 && !s.InReserve(); i++ {
		if _, err := s.Client().Put(t.Context(), "k", value); err != nil {
			t.Fatal(err)
		}
		if i%8 == 0 {
			s.etcd.Server.Backend().ForceCommit() // InReserve goes by what is committed
		}
	}
	if !s.InReserve() || s.full() {
		t.Fatalf("it is not in the reserve, or full: %t", s.full())
	}
	s.checkSpace(t.Context(), time.Now())
	if commitOften(t, s); s.InReserve() || !s.defragmented.IsZero() {
		t.Errorf("it is still in the reserve, or was defragmented: %s", s.defragmented)
	}
}

// A storage that was full takes writes when it is started with a larger quota.
func TestLargerQuotaMakesRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, Options{Dir: dir, QuotaBytes: smallQuota})
	fill(t, s, 0, 1000)
	s.Close()
	s = start(t, Options{Dir: dir, QuotaBytes: 4 * smallQuota})
	defer s.Close()
	if !takesWrites(t, s.Client()) {
		t.Error("it takes no writes although there is room")
	}
}

// Defragmentation stops the hub for some seconds, so there has to be something in it.
func TestWorthDefragmenting(t *testing.T) {
	t.Parallel()
	const mib, quota = 1 << 20, 8 << 30
	for name, test := range map[string]struct {
		size, used int64
		want       bool
	}{
		"small":                        {size: 100 * mib, used: mib},
		"half empty":                   {size: 1000 * mib, used: 400 * mib, want: true},
		"more than half full":          {size: 1000 * mib, used: 600 * mib},
		"near the quota, with room":    {size: 7000 * mib, used: 5000 * mib, want: true},
		"near the quota, without room": {size: 7000 * mib, used: 6500 * mib},
	} {
		if got := worthDefragmenting(test.size, test.used, quota); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// That the storage gets full is said once, before it is.
func TestNearlyFull(t *testing.T) {
	t.Parallel()
	var said int
	s := &Server{quota: 1000, logger: funcr.New(func(_, _ string) { said++ }, funcr.Options{})}
	for _, step := range []struct{ used, said int }{{700, 0}, {810, 1}, {900, 1}, {500, 1}, {810, 2}} {
		if s.warnOfSize(int64(step.used)); said != step.said {
			t.Errorf("at %d of 1000: said %d times, want %d", step.used, said, step.said)
		}
	}
}
