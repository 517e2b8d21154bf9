"""Plays a story against a stand-in that allocates the addresses of a list, and prints the number of plays and the address compared.

    coincidence.py FOLDER_OF_APIDIFF ADDRESS...
"""
import json
import sys
from http.client import HTTPMessage

sys.path.insert(0, sys.argv[1])
import apidiff

ASKED = {"spec": {"clusterIP": "10.0.0.99"}}
STORY = {"t": "allocation", "s": [
    {"m": "POST", "p": "/api/v1/namespaces/{ns}/services", "b": {"metadata": {"name": "a"}}},
    {"m": "PUT", "p": "/api/v1/namespaces/{ns}/services/a", "b": ASKED},
]}


class Server:
    def __init__(self, addresses):
        self.addresses, self.plays = addresses, 0

    def me(self):
        return "me", "uid"

    def send(self, method, path, data=None, headers=None):
        if method != "POST" or not path.endswith("/services"):
            return (422 if method == "PUT" else 200), b"{}", HTTPMessage()
        self.plays += 1
        address = self.addresses[min(self.plays, len(self.addresses)) - 1]
        return 201, json.dumps({"metadata": {"name": "a"}, "spec": {"clusterIP": address}}).encode(), HTTPMessage()


server = Server(sys.argv[2:])
apidiff.play_all(server, [STORY], 1, lambda _, answers: print(server.plays, answers[0]["b"]["spec"]["clusterIP"]))
