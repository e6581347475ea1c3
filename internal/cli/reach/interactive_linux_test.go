package reach_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capstan-io/capstan/internal/cli"
	"github.com/capstan-io/capstan/internal/cli/clitest"
)

// openTerminal returns both ends of a new terminal: what somebody types at one, a program reads at the other.
func openTerminal(t *testing.T) (keyboard, in *os.File) {
	t.Helper()
	open := func(name string) *os.File {
		file, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
		if err != nil {
			t.Skipf("no terminals here: %v", err)
		}
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	keyboard = open("/dev/ptmx")
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	return keyboard, open(filepath.Join("/dev/pts", strconv.Itoa(number)))
}

// typeLine types a line.
func typeLine(t *testing.T, keyboard *os.File, line string) {
	t.Helper()
	if _, err := keyboard.WriteString(line + "\n"); err != nil {
		t.Fatal(err)
	}
}

// CA-43: an interrupt from the keyboard ends what kubectl does, and the next line is read.
func TestKubectlInteractiveInterruptOfKubectl(t *testing.T) {
	fakeKubectl(t, `if [ "$1" = logs ]; then kill -INT $PPID; exit 130; fi; printf '<%s>' "$@"; echo`)
	h := clitest.NewHubWithClusters(t)
	h.Connect("cluster1", podsOf())
	keyboard, in := openTerminal(t)
	for _, line := range []string{"logs -f web", "get pods", "exit"} {
		typeLine(t, keyboard, line)
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt) // as the program has it
	defer stop()
	var out, errOut bytes.Buffer
	code := cli.Main(ctx, []string{"--kubeconfig", h.File, "proxy", "kubectl", "--cluster", "cluster1", "-i"}, in, &out, &errOut)
	if out.String() != "<get><pods>\n" || code != 0 {
		t.Errorf("exit code %d, printed %q and %q", code, out.String(), errOut.String())
	}
}

// CA-43: at the prompt, an interrupt begins another line, and signals that end the session leave no kubeconfig behind.
func TestKubectlInteractiveSignalsAtThePrompt(t *testing.T) {
	for name, test := range map[string]struct {
		sent syscall.Signal
		code int
	}{
		"interrupt":  {syscall.SIGINT, 0},
		"hangup":     {syscall.SIGHUP, 130},
		"terminated": {syscall.SIGTERM, 130},
	} {
		t.Run(name, func(t *testing.T) {
			fakeKubectl(t, "exit 1")
			h := clitest.NewHubWithClusters(t)
			h.Connect("cluster1", podsOf())
			keyboard, in := openTerminal(t)
			printed, errOut := io.Pipe()
			ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM) // as the program has it
			defer stop()
			ended := make(chan int, 1)
			go func() {
				code := cli.Main(ctx, []string{"--kubeconfig", h.File, "proxy", "kubectl", "--cluster", "cluster1", "-i"}, in, io.Discard, errOut)
				_ = errOut.Close()
				ended <- code
			}()
			prompts := bufio.NewReader(printed)
			awaitPrompt := func() {
				if text, err := prompts.ReadString('>'); err != nil {
					t.Fatalf("no prompt: %q", text)
				}
			}
			awaitPrompt()
			if err := syscall.Kill(os.Getpid(), test.sent); err != nil {
				t.Fatal(err)
			}
			if test.code == 0 {
				awaitPrompt()
				typeLine(t, keyboard, "exit")
			}
			rest, _ := io.ReadAll(prompts)
			if code := <-ended; code != test.code {
				t.Errorf("exit code %d, want %d: %s", code, test.code, rest)
			}
			if left := leftovers(t); left != nil {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
