package options

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/capstan-io/capstan/internal/terminal"
)

// RunProgram runs a program as if it had been started itself: it gets the signals, and decides how it ends. Its exit code is an ExitError.
func RunProgram(command *exec.Cmd) error {
	err := runForwardingSignals(command)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return fmt.Errorf("run %s: %w", command.Args[0], err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		const signalled = 128 // what shells add
		return ExitError{Code: signalled + int(status.Signal())}
	}
	return ExitError{Code: exit.ExitCode()}
}

// Terminations are the signals by which others end a program. To wait for a hangup would end that it is ignored, as nohup has it.
func Terminations() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{syscall.SIGTERM}
	}
	return []os.Signal{syscall.SIGTERM, syscall.SIGHUP}
}

// runForwardingSignals passes signals on to a program until it has ended. Those of the keyboard reach it without that.
func runForwardingSignals(command *exec.Cmd) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, append(Terminations(), os.Interrupt)...)
	defer signal.Stop(signals)
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case s := <-signals:
				if s != os.Interrupt || !terminal.IsInput(command.Stdin) {
					_ = command.Process.Signal(s) // it may have ended
				}
			case <-ended:
				return
			}
		}
	}()
	return command.Wait()
}
