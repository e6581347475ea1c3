// Package etcd runs the single-member etcd that a standalone hub and a sandbox keep their objects in.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"expvar"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/capstan-io/capstan/internal/controlplane/datadir"
)

const (
	// DefaultSnapshotCount is the number of committed writes between two raft snapshots.
	DefaultSnapshotCount = 5000

	// readyTimeout bounds the wait for a started member to serve. Replaying a large log takes seconds.
	readyTimeout = 60 * time.Second

	// interruptTimeout is how long a member that is starting may go on after its start was called off. Closed before
	// it leads, it waits for seconds.
	interruptTimeout = 3 * time.Second

	// A single member has no heartbeats to wait for: ticks only cost wake-ups, so they are rare, and the election they
	// would delay is forced by campaign.
	tickMillis     = 500
	electionMillis = 5000

	// A follower would need old entries to catch up; there is none, so they would only hold memory.
	catchUpEntries = 64

	// commitInterval is how often what was written goes from memory to the file of the database; etcd's own is 100 ms, which wakes an
	// idle process ten times a second. The write-ahead log keeps what a crash interrupts.
	commitInterval = time.Second

	// DefaultQuotaBytes is the size at which etcd refuses writes; etcd's own default is 2 GiB, its advised maximum 8.
	DefaultQuotaBytes = 8 << 30

	// lockFile is the lock of Options.Dir, which may be a data directory with a lock of its own.
	lockFile = "etcd.lock"

	memberName = "hub"

	// peerURL identifies the member in its own membership record. Nobody dials it, and it must never change.
	peerURL = "http://127.0.0.1:2380"
)

// Options say where an embedded etcd keeps its data and who can reach it.
type Options struct {
	// Dir holds the database and, where its path is short enough, the private socket. Created with mode 0700.
	Dir string
	// NoFsync skips fsync: faster, and a power failure loses data. For tests only.
	NoFsync bool
	// SnapshotCount is the number of committed writes between raft snapshots; 0 means DefaultSnapshotCount.
	SnapshotCount uint64
	// WALSizeBytes is the size of a write-ahead log file; 0 means etcd's own 64 MB. It is for the whole process.
	WALSizeBytes int64
	// QuotaBytes is the size of the database at which it takes no more writes; 0 means DefaultQuotaBytes.
	QuotaBytes int64
	// ClientPort and PeerPort, when set, serve mutual TLS on localhost next to the private socket; TLS is
	// then required.
	ClientPort, PeerPort int
	// TLS names the files of the TCP listeners.
	TLS TLS
	// Logger receives etcd's own messages; the zero value discards them.
	Logger logr.Logger
}

// TLS names the PEM files for etcd's TCP listeners: the CA that clients and peers must be signed by, and the member's
// own certificate, valid for both server and client authentication.
type TLS struct {
	CAFile, CertFile, KeyFile string
}

// Server is a running etcd member.
type Server struct {
	etcd     *embed.Etcd
	log      *logCore
	logger   logr.Logger
	endpoint string
	cleanup  func()
	quota    int64
	// reading is held by open snapshots, and alone by a defragmentation, which would wait for them, and have all reads and writes wait for it.
	reading sync.RWMutex

	// What KeepSpace remembers: when it defragmented, and when it dropped the history of a full database; at which revision it last did both;
	// and whether it has said that the database is nearly full.
	defragmented, compacted time.Time
	shrunkAt                int64
	warned                  bool
}

// starting lets one member of this process start at a time: raft's status, which campaign needs, is published for the
// member started last.
var starting sync.Mutex

// Start runs an etcd member and returns when it can serve. The caller must Close it. It fails when the data is in use
// by another process, is broken, or a port is taken.
func Start(ctx context.Context, o Options) (*Server, error) {
	// etcd itself would wait for another process, without a word and for ever, and take its socket away.
	lock, err := datadir.AcquireAs(o.Dir, lockFile)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	server, err := startLocked(ctx, o)
	if err != nil {
		_ = lock.Release()
		return nil, err
	}
	cleanup := server.cleanup
	server.cleanup = func() {
		cleanup()
		_ = lock.Release()
	}
	return server, nil
}

func startLocked(ctx context.Context, o Options) (*Server, error) {
	socketDir, cleanup, err := socketDirectory(o.Dir)
	if err != nil {
		return nil, err
	}
	socket := url.URL{Scheme: "unix", Path: filepath.Join(socketDir, socketName)}
	core := newLogCore(o.Logger)
	cfg, err := config(o, socket, core)
	if err != nil {
		cleanup()
		return nil, err
	}
	starting.Lock()
	defer starting.Unlock()
	if err := ctx.Err(); err != nil {
		cleanup()
		return nil, err
	}
	going, cancel := interruptible(ctx)
	defer cancel()
	member, err := startMember(going, cfg, core)
	if err != nil {
		cleanup()
		return nil, fmt.Errorf("start etcd in %s: %w", o.Dir, err)
	}
	server := &Server{etcd: member, log: core, logger: o.Logger, endpoint: "unix://" + socket.Path, cleanup: cleanup,
		quota: cfg.QuotaBackendBytes}
	if err := server.waitReady(going); err != nil {
		server.abandon()
		return nil, fmt.Errorf("start etcd in %s: %w", o.Dir, err)
	}
	if err := ctx.Err(); err != nil {
		server.Close()
		return nil, fmt.Errorf("start etcd in %s: %w", o.Dir, err)
	}
	if server.full() {
		// Nothing would start on it. What there is no room for is said again as long as that is so.
		server.checkSpace(ctx, time.Now())
	}
	go func() {
		for err := range member.Err() {
			core.fail(err)
		}
	}()
	return server, nil
}

// interruptible ends some time after ctx does.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	going, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(interruptTimeout, cancel) })
	return going, func() {
		stop()
		cancel()
	}
}

// startMember returns as soon as etcd cannot go on, or ctx ends, leaving it as it is.
func startMember(ctx context.Context, cfg *embed.Config, core *logCore) (*embed.Etcd, error) {
	type result struct {
		member *embed.Etcd
		err    error
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if reason := recover(); reason != nil {
				done <- result{err: unusable(fmt.Errorf("%v", reason))}
			}
		}()
		member, err := embed.StartEtcd(cfg)
		done <- result{member, err}
	}()
	select {
	case o := <-done:
		return o.member, o.err
	case err := <-core.failed:
		return nil, unusable(err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// errOtherMember is about data in which this member does not find itself.
var errOtherMember = fmt.Errorf("its files are those of another etcd member; if they were restored from a snapshot, restore them with "+
	"--name %[1]s --initial-cluster %[1]s=%[2]s --initial-advertise-peer-urls %[2]s", memberName, peerURL)

// unusable says what to do about data that etcd cannot start on.
func unusable(err error) error {
	if strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		return fmt.Errorf("%w; make room on the disk", err)
	}
	if strings.Contains(err.Error(), "member unknown") {
		return fmt.Errorf("%w; %w", err, errOtherMember)
	}
	return fmt.Errorf("%w; its files are damaged: restore the folder from a backup", err)
}

func config(o Options, socket url.URL, core *logCore) (*embed.Config, error) {
	if o.WALSizeBytes > 0 {
		wal.SegmentSizeBytes = o.WALSizeBytes
	}
	advertised, err := url.Parse(peerURL)
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = MemberDir(o.Dir)
	cfg.ListenClientUrls = []url.URL{socket}
	cfg.AdvertiseClientUrls = []url.URL{socket}
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{*advertised}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = tickMillis, electionMillis
	cfg.UnsafeNoFsync = o.NoFsync
	cfg.QuotaBackendBytes = cmp.Or(o.QuotaBytes, DefaultQuotaBytes)
	cfg.BackendBatchInterval = commitInterval
	cfg.SnapshotCatchUpEntries = catchUpEntries
	cfg.SnapshotCount = o.SnapshotCount
	if cfg.SnapshotCount == 0 {
		cfg.SnapshotCount = DefaultSnapshotCount
	}
	cfg.EnableGRPCGateway = false
	cfg.Metrics = "basic"
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(core.logger())
	if err := addTCP(cfg, o); err != nil {
		return nil, err
	}
	return cfg, nil
}

// addTCP adds the listeners that other programs can reach. They demand a client certificate.
func addTCP(cfg *embed.Config, o Options) error {
	if o.ClientPort == 0 && o.PeerPort == 0 {
		return nil
	}
	if o.TLS.CAFile == "" || o.TLS.CertFile == "" || o.TLS.KeyFile == "" {
		return errors.New("etcd's TCP ports need a CA, a certificate and a key")
	}
	if o.ClientPort != 0 {
		listen := localURL(o.ClientPort)
		cfg.ListenClientUrls = append(cfg.ListenClientUrls, listen)
		cfg.AdvertiseClientUrls = append(cfg.AdvertiseClientUrls, listen)
		cfg.ClientTLSInfo.TrustedCAFile = o.TLS.CAFile
		cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile = o.TLS.CertFile, o.TLS.KeyFile
		cfg.ClientTLSInfo.ClientCertAuth = true
	}
	if o.PeerPort != 0 {
		cfg.ListenPeerUrls = []url.URL{localURL(o.PeerPort)}
		cfg.PeerTLSInfo.TrustedCAFile = o.TLS.CAFile
		cfg.PeerTLSInfo.CertFile, cfg.PeerTLSInfo.KeyFile = o.TLS.CertFile, o.TLS.KeyFile
		cfg.PeerTLSInfo.ClientCertAuth = true
	}
	return nil
}

func localURL(port int) url.URL {
	return url.URL{Scheme: "https", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
}

// waitReady makes the member leader of its cluster of one and waits until it has published itself.
func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready within %s", readyTimeout))
	defer cancel()
	retry := time.NewTicker(2 * time.Millisecond)
	defer retry.Stop()
	for {
		select {
		case <-s.etcd.Server.ReadyNotify():
			return nil
		case err := <-s.etcd.Err():
			return err
		case err := <-s.log.failed:
			return unusable(err)
		case <-s.etcd.Server.StopNotify():
			return errors.New("the member stopped while starting; its log says why")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-retry.C:
			if err := s.isMember(); err != nil {
				return err
			}
			s.campaign(ctx)
		}
	}
}

// isMember makes sure that the data is this member's: with another's it would wait forever for that one's vote. Right after a
// start that was killed, the log may have the membership and the storage not yet.
func (s *Server) isMember() error {
	if !replayed() || s.etcd.Server.AppliedIndex() < s.etcd.Server.CommittedIndex() ||
		s.etcd.Server.Cluster().Member(s.etcd.Server.MemberID()) != nil {
		return nil
	}
	return errOtherMember
}

// campaign starts an election at once instead of after a random election timeout. Raft ignores it until the membership
// is applied, hence the caller repeats it.
func (s *Server) campaign(ctx context.Context) {
	if s.etcd.Server.Leader() != 0 || !replayed() {
		return
	}
	self := uint64(s.etcd.Server.MemberID())
	// Its only failure is a stopping member, which waitReady notices.
	_ = s.etcd.Server.Process(ctx, &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: &self, To: &self})
}

// replayed says whether raft knows that the log of earlier runs is applied. Before, an election would scan entries that
// may have been compacted already, at which raft panics.
func replayed() bool {
	published, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return false
	}
	status, ok := published.Value().(raft.Status)
	return ok && status.Applied >= status.GetCommit()
}

// Endpoint is the URL a client of the same machine dials: a unix socket only this user can open.
func (s *Server) Endpoint() string { return s.endpoint }

// Snapshot is the database as it is now. Until it is closed, the database does not use again what it frees, is not defragmented, and the
// member does not close.
func (s *Server) Snapshot() backend.Snapshot {
	s.reading.RLock()
	return &snapshot{Snapshot: s.etcd.Server.Backend().Snapshot(), done: sync.OnceFunc(s.reading.RUnlock)}
}

type snapshot struct {
	backend.Snapshot
	done func()
}

// Close implements backend.Snapshot.
func (s *snapshot) Close() error {
	defer s.done()
	return s.Snapshot.Close()
}

// MemberDir is where a member has its files below Options.Dir.
func MemberDir(dir string) string { return filepath.Join(dir, "member-data") }

// Membership is the name and the URL of the member in the record of its cluster of one.
func Membership() (name, url string) { return memberName, peerURL }

// Client calls the member without a connection to it.
func (s *Server) Client() *clientv3.Client { return v3client.New(s.etcd.Server) }

// Err delivers what a running member cannot go on after.
func (s *Server) Err() <-chan error { return s.log.failed }

// abandon stops a member that did not become ready. Close would wait for its listeners, which start when it is.
func (s *Server) abandon() {
	s.log.mute()
	if !s.log.broken.Load() {
		s.etcd.Server.HardStop()
	}
	s.cleanup()
}

// Close stops the member, writes what is pending and removes the socket. A member that failed in the middle of something
// is left as it is: it would wait for itself.
func (s *Server) Close() {
	// Listeners that end are reported as errors; at this point that is what was requested.
	s.log.mute()
	if !s.log.broken.Load() {
		s.etcd.Close()
	}
	s.cleanup()
}
