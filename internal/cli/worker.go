package cli

import (
	"cmp"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorstep-dev/doorstep/internal/worker"
)

func newWorkerCommand(s Streams) *cobra.Command {
	var o worker.Options
	var kubeconfig string
	var verbosity int
	cmd := &cobra.Command{
		Use:   "worker --pool NAME",
		Short: "Run the data plane of a DeliveryPool in a cluster",
		Long: "Run the data plane of a DeliveryPool: take events, keep them and deliver them by the plan that the manager writes.\n" +
			"The manager starts workers; there is one for each volume.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Pool.Namespace = cmp.Or(o.Pool.Namespace, s.Getenv("POD_NAMESPACE"))
			o.Pod = cmp.Or(o.Pod, s.Getenv("POD_NAME"))
			switch {
			case o.Pool.Name == "":
				return errors.New("--pool is needed: the name of the DeliveryPool")
			case o.Pool.Namespace == "":
				return errors.New("--namespace is needed: the namespace of the DeliveryPool, or set POD_NAMESPACE")
			case o.Pod == "":
				return errors.New("--pod-name is needed: the name of this Pod, or set POD_NAME")
			case o.Data == "" || o.PlanDir == "":
				return errors.New("--data and --plan are needed: the folders of the volume and of the plan")
			}
			var err error
			if o.Config, err = clusterConfig(kubeconfig); err != nil {
				return err
			}
			o.Version, o.Log = Version(), newClusterLogger(s.Err, verbosity)
			o.Planned = tuneMemory()
			return worker.Run(cmd.Context(), o)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&kubeconfig, "kubeconfig", "", "file that says how to reach the API server (default: as a pod does, else $KUBECONFIG)")
	fl.StringVar(&o.Pool.Name, "pool", "", "name of the DeliveryPool")
	fl.StringVar(&o.Pool.Namespace, "namespace", "", "namespace of the DeliveryPool (default $POD_NAMESPACE)")
	fl.StringVar(&o.Pod, "pod-name", "", "name of this Pod, which its Lease has too (default $POD_NAME)")
	fl.StringVar(&o.Data, "data", "", "folder of the volume that keeps the queue")
	fl.StringVar(&o.PlanDir, "plan", "", "folder of the plan, as the pod's volume has it")
	fl.StringVar(&o.TLSDir, "tls", "", "folder with tls.crt and tls.key of the API; empty speaks http")
	fl.StringVar(&o.Listen, "listen", ":8080", "address of the API")
	fl.StringVar(&o.Probes, "probes", ":8082", "address of /healthz and /readyz")
	fl.StringVar(&o.Metrics, "metrics", ":9090", "address of /metrics; empty for none")
	fl.DurationVar(&o.Grace, "grace", 65*time.Second, "how long attempts in flight may take to end on a stop")
	fl.CountVarP(&verbosity, "verbose", "v", "log also failed attempts, and what goes wrong with HTTP clients")
	_ = cmd.MarkFlagDirname("data")
	_ = cmd.MarkFlagDirname("plan")
	_ = cmd.MarkFlagDirname("tls")
	return cmd
}
