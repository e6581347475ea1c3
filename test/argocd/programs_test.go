package argocd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// limit is how long a test waits for one thing: far longer than anything takes.
	limit = time.Minute
	// grace is how long a program may take to stop when asked.
	grace = 30 * time.Second
)

// program is a child process that writes to a log.
type program struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
}

// binary is the path of a program of Capstan. Go takes the results of these tests from its cache as long as the programs that they have
// asked for are what they were. It only looks at files of this module: bin is a link to the folder at the top of the repository.
func binary(name string) (string, error) {
	path, err := filepath.Abs(filepath.Join("bin", name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run make build", err)
	}
	return path, nil
}

// environ is the environment of programs, by which they cannot differ without Go noticing.
func environ() []string {
	var variables []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, set := os.LookupEnv(name); set {
			variables = append(variables, name+"="+value)
		}
	}
	return variables
}

// start starts a program, whose log is in a folder.
func start(dir, name string, args ...string) (*program, error) {
	path, err := binary(name)
	if err != nil {
		return nil, err
	}
	p := &program{name: name, log: filepath.Join(dir, name+".log"), cmd: exec.Command(path, args...), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = environ(), log, log
	// A child must not outlive a test binary that was killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// stop asks the program to stop, and ends it if it does not.
func (p *program) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.kill()
	}
}

// kill ends the program as a crash does.
func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// tail is the end of its log.
func (p *program) tail() string {
	const lines = 30
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	return fmt.Sprintf("%s wrote last:\n%s", p.log, bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// capstan runs the command line, and returns what it prints.
func capstan(ctx context.Context, kubeconfig string, args ...string) ([]byte, error) {
	path, err := binary("capstan")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, path, append([]string{"--kubeconfig", kubeconfig}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environ(), &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("capstan %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errOut.String())
	}
	return out.Bytes(), nil
}

// await waits until check returns no error, and returns the last one if it never does.
func await(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil || last == nil {
			last = err // not that it was cut off, which says nothing
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("still after %s: %w", limit, last)
	}
	return nil
}

// eventually is await for a test, which fails if the condition is never met.
func eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	if err := await(t.Context(), check); err != nil {
		t.Fatal(err)
	}
}

// freePort is a port of the loopback interface that nothing listens on, below those that the system gives to outgoing connections, and out
// of the way of the other tests of the repository.
func freePort() (int, error) {
	const lowest, count, tries = 20000, 5000, 100
	for range tries {
		port := lowest + rand.IntN(count)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, errors.New("no port is free")
}
