package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envPrefix is the prefix of each flag's environment variable: CURLMETHAT_NATS_URL sets --nats-url.
const envPrefix = "CURLMETHAT_"

// envName returns the environment variable that sets a flag.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// What many flags must be.
const (
	Positive    = "positive"
	NotNegative = "zero or more"
)

// CheckFlag returns an error about a flag unless it is valid; must says which values are.
func CheckFlag(name string, valid bool, must string) error {
	if valid {
		return nil
	}
	return fmt.Errorf("--%s must be %s", name, must)
}

// Execute runs a command like Run until it returns or a signal ends it, and returns the exit code. The
// first SIGINT, SIGTERM or SIGHUP cancels the context of the command, which then drains. The second ends
// the process at once with 128 plus the signal's number.
func Execute(cmd *cobra.Command) int {
	// net/http logs unsolicited data of servers with the standard logger.
	log.SetOutput(io.Discard)
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer context.AfterFunc(ctx, stop)() // the second signal ends the process
	return Run(ctx, cmd)
}

// Run runs a command, and returns the exit code. It prints an error as one sentence. The end of ctx is no
// error, unless the command returns an ExitError for it. A command with the flag --listen gets a
// subcommand healthcheck.
func Run(ctx context.Context, cmd *cobra.Command) int {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.Version = BuildVersion()
	addHealthcheck(cmd) //nolint:contextcheck // its command has a context of its own
	describeEnv(cmd)
	cmd.SetFlagErrorFunc(FlagError)
	cmd.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return ApplyEnv(c.Flags()) }

	err := cmd.ExecuteContext(ctx)
	code, isCode := errors.AsType[ExitError](err)
	if err == nil || !isCode && errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return 0
	}
	if !code.Silent {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.Name(), err)
	}
	return cmp.Or(code.Code, 1)
}

// FlagError returns a plain sentence about an invalid flag, with exit code 2.
func FlagError(cmd *cobra.Command, err error) error {
	if invalid, found := errors.AsType[*pflag.InvalidValueError](err); found {
		cause := errors.Unwrap(invalid)
		if _, found := errors.AsType[*strconv.NumError](cause); found {
			kind := map[string]string{"bool": "neither true nor false"}[invalid.GetFlag().Value.Type()]
			cause = fmt.Errorf("%q is %s", invalid.GetValue(), cmp.Or(kind, "not a number"))
		}
		err = fmt.Errorf("--%s: %w", invalid.GetFlag().Name, cause)
	}
	return ExitError{Err: fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath()), Code: 2}
}

// ExitError carries an exit code other than 1.
type ExitError struct {
	// Err is the error to print.
	Err error
	// Code of the process.
	Code int
	// Silent: the command has already printed everything.
	Silent bool
}

// Error returns the text of Err.
func (e ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e ExitError) Unwrap() error { return e.Err }

// ApplyEnv sets each flag that is not on the command line from its environment variable. Its error has exit
// code 2, like that of a flag.
func ApplyEnv(flags *pflag.FlagSet) (first error) {
	flags.VisitAll(func(f *pflag.Flag) {
		value, set := os.LookupEnv(envName(f.Name))
		if set && !f.Changed && first == nil && flags.Set(f.Name, value) != nil {
			first = ExitError{Code: 2, Err: fmt.Errorf("environment variable %s: %q is not valid for --%s",
				envName(f.Name), value, f.Name)}
		}
	})
	return first
}

// describeEnv adds the environment variable to the help of each flag.
func describeEnv(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" && !strings.Contains(f.Usage, envPrefix) {
			f.Usage += " [" + envName(f.Name) + "]"
		}
	})
	for _, sub := range cmd.Commands() {
		describeEnv(sub)
	}
}

// Settings are the settings of a command.
type Settings interface {
	// BindFlags adds the flags.
	BindFlags(fs *pflag.FlagSet)
	// Validate returns the first invalid setting, as a sentence.
	Validate() error
}

// NewCommand adds the flags of the settings to cmd, which takes no arguments and runs if the
// settings are valid.
func NewCommand(cmd *cobra.Command, s Settings, run func(ctx context.Context) error) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.Validate(); err != nil {
			return err
		}
		return run(cmd.Context())
	}
	s.BindFlags(cmd.Flags())
	return cmd
}

// Version is the release, set by the linker; see BuildVersion.
var Version string //nolint:gochecknoglobals // the linker needs a variable

// BuildVersion returns Version, or the version recorded by the Go toolchain.
func BuildVersion() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" && info.Main.Version != "(devel)" {
			return info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "devel-" + s.Value[:12]
			}
		}
	}
	return "devel"
}

// LimitGarbage sets the garbage collector's target percentage, unless GOGC is set.
func LimitGarbage(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
