package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// restartDelay keeps a program that ends at once from taking all of the processor.
const restartDelay = 500 * time.Millisecond

// Run is the first process of a node: it sets up the inside of the namespaces that it was started in, and runs the programs of the node
// until it is killed. Programs that end are started again.
func Run(index int) error {
	if os.Getpid() != 1 {
		return errors.New("this is not the first process of a node")
	}
	n, err := load((&Node{Index: index}).Dir())
	if err != nil {
		return err
	}
	if n.Detached {
		syscall.CloseOnExec(3) // the lock, which is for this process alone
	}
	if _, err := io.ReadFull(os.Stdin, make([]byte, len(connected))); err != nil {
		return fmt.Errorf("the owner has ended: %w", err)
	}
	if !n.Detached {
		go endWithOwner()
	}
	if err := n.mount(); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(n.Name)); err != nil {
		return err
	}
	if err := n.configureNetwork(); err != nil {
		return err
	}
	return n.supervise()
}

// connected is what the owner writes to the input of the node when it has connected the node to the network. It leaves the input open.
const connected = "connected"

// endWithOwner ends the node when the process that started it has ended: the kernel then ends the input.
func endWithOwner() {
	_, err := io.Copy(io.Discard, os.Stdin)
	fmt.Fprintln(os.Stderr, "the owner has ended:", err)
	os.Exit(0)
}

// sysctls are the machine's, not the node's, and the kubelet writes them: it gets copies.
var sysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// mount gives the node its own /proc, /run and /var.
func (n *Node) mount() error {
	if err := mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", 0); err != nil {
		return err
	}
	for _, name := range sysctls {
		if err := n.copySysctl(name); err != nil {
			return err
		}
	}
	if err := mount("tmpfs", n.Path("run"), "tmpfs", 0); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Base(files), "lock", "netns"} {
		if err := os.Mkdir(n.Path("run", dir), 0o755); err != nil {
			return err
		}
	}
	program := n.Path("run", filepath.Base(HyperkubePath))
	if err := os.WriteFile(program, nil, 0o600); err != nil {
		return err
	}
	for _, bind := range []struct {
		source, target string
		flags          uintptr
	}{
		{n.Hyperkube, program, syscall.MS_BIND},
		{n.Dir(), n.Path("run", filepath.Base(files)), syscall.MS_BIND},
		{n.Path("run"), "/run", syscall.MS_BIND | syscall.MS_REC},
		{n.Path("var"), "/var", syscall.MS_BIND}, // hides the directory of the node
	} {
		if err := mount(bind.source, bind.target, "", bind.flags); err != nil {
			return err
		}
	}
	return mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED) // as pods that mount volumes for others want it
}

func (n *Node) copySysctl(name string) error {
	path := filepath.Join("/proc/sys", name)
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	copied := n.Path("sysctl", filepath.Base(name))
	if err := os.WriteFile(copied, content, 0o600); err != nil {
		return err
	}
	return mount(copied, path, "", syscall.MS_BIND)
}

func mount(source, target, kind string, flags uintptr) error {
	if err := syscall.Mount(source, target, kind, flags, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

// supervisor starts programs, and reaps them and all processes without a parent, as the first process has to.
type supervisor struct {
	running map[int]program
	restart chan program
}

func (n *Node) supervise() error {
	s := &supervisor{running: map[int]program{}, restart: make(chan program)}
	if err := os.MkdirAll(in("run.pids"), 0o755); err != nil {
		return err
	}
	for _, p := range n.foundation() {
		if err := s.start(p); err != nil {
			return err
		}
	}
	ready := make(chan error, 1)
	go func() { ready <- n.awaitAPIServer() }()
	exited := make(chan int)
	go reap(exited)
	for {
		select {
		case err := <-ready:
			if err != nil {
				return err
			}
			for _, p := range n.clients() {
				if err := s.start(p); err != nil {
					return err
				}
			}
		case pid := <-exited:
			s.ended(pid)
		case p := <-s.restart:
			if err := s.start(p); err != nil {
				return err
			}
		}
	}
}

// start does not wait for the process: reap does.
func (s *supervisor) start(p program) error {
	path, err := exec.LookPath(p.args[0])
	if err != nil {
		return err
	}
	log, err := os.OpenFile(in("log", p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	process, err := os.StartProcess(path, p.args, &os.ProcAttr{Dir: "/", Env: os.Environ(), Files: []*os.File{nil, log, log},
		Sys: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.user, Gid: p.user}}})
	if err != nil {
		return err
	}
	s.running[process.Pid] = p
	if err := os.WriteFile(in("run.pids", p.name), []byte(strconv.Itoa(process.Pid)), 0o600); err != nil {
		return err
	}
	return process.Release()
}

func (s *supervisor) ended(pid int) {
	p, found := s.running[pid]
	if !found {
		return
	}
	delete(s.running, pid)
	fmt.Fprintf(os.Stderr, "%s %s ended and will be started again\n", time.Now().Format(time.RFC3339Nano), p.name)
	time.AfterFunc(restartDelay, func() { s.restart <- p })
}

// reap tells which processes have ended. There are always some: the programs are started before.
func reap(exited chan<- int) {
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no process is left, until one is started again
			<-time.After(restartDelay)
		default:
			exited <- pid
		}
	}
}

// awaitAPIServer asks the API server as long as it is not ready.
func (n *Node) awaitAPIServer() error {
	ca, err := os.ReadFile(in("pki/ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, n.URL()+"/readyz", nil)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for range ticker.C {
		if response, err := client.Do(request); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
		}
	}
	return nil
}
