"""Installs, upgrades, rolls back and uninstalls a chart with Helm's own code, and waits for its workloads each time.

usage: helm_lifecycle.py KUBECONFIG FOLDER    FOLDER is empty; the chart is written there
"""
import os
import sys

import helm_python

kubeconfig, folder = sys.argv[1:]
TIMEOUT_SECONDS = 60

CHART = "apiVersion: v2\nname: shop\nversion: 0.1.0\n"
TEMPLATES = {
    "deployment.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:{{ .Values.version }}"}]}
""",
    "service.yaml": """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80}]}
""",
    "database.yaml": """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: db}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
""",
    "agent.yaml": """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: agent}]}
""",
    "migration.yaml": """
apiVersion: batch/v1
kind: Job
metadata:
  name: migration
  annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: before-hook-creation}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: migration, image: web}]}}
""",
}

os.makedirs(os.path.join(folder, "templates"))
with open(os.path.join(folder, "Chart.yaml"), "w", encoding="utf-8") as file:
    file.write(CHART)
for name, text in TEMPLATES.items():
    with open(os.path.join(folder, "templates", name), "w", encoding="utf-8") as file:
        file.write(text.lstrip())

with helm_python.Config(kubeconfig_path=kubeconfig, namespace="default") as config:
    for wait in ["watcher", "legacy"]:
        options = {"wait": wait, "timeout": TIMEOUT_SECONDS}
        config.install(folder, "shop", {"version": 1}, **options)
        config.upgrade(folder, "shop", {"version": 2}, **options)
        config.rollback("shop", version=1, **options)
        statuses = [release["status"] for release in config.history("shop")]
        assert statuses == ["superseded", "superseded", "deployed"], statuses
        config.uninstall("shop", **options)
        assert config.list(all_states=True) == [], config.list(all_states=True)
        print(f"{wait}: installed, upgraded, rolled back, uninstalled")
