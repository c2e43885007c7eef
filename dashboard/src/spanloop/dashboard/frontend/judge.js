export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const host = parentElement.querySelector(".judge-host");
  const send = (opinion) => setTriggerValue("opinion", { ...opinion, target: data.target });

  const verdict = (label, key, value) => make("button", {
    type: "button", class: value, "aria-pressed": String(data.verdict === value && !data.owner),
    onclick: () => send({ verdict: value }),
  }, label, data.hasKeys ? make("kbd", { text: key, "aria-hidden": true }) : null);

  const owners = () => make("details", {}, make("summary", { text: data.owner ? `Fault of: ${data.owner}` : data.ownersLabel }),
    make("div", { class: "panel" }, ...data.owners.map((owner) => make("button", {
      type: "button", "aria-pressed": String(data.owner === owner), text: owner,
      onclick: () => send({ fault_owner: owner }),
    }))));

  const move = (label, key, href) =>
    href ? link(href, { class: "move", rel: key }, label, make("kbd", { text: key, "aria-hidden": true })) : null;

  const acts = data.canAct ? [
    verdict(data.labels.good, "g", "good"), verdict(data.labels.bad, "b", "bad"), owners(),
  ] : [];
  host.replaceChildren(...acts.filter(Boolean), ...[
    data.state ? make("span", { class: "hint", role: "status", text: data.state }) : null,
    data.moves ? make("span", { class: "space" }) : null,
    ...(data.moves ? [
      make("span", { class: "left", role: "status", text: data.moves.left }),
      move("Skip", "s", data.moves.skip), move("Previous", "p", data.moves.previous), move("Next", "n", data.moves.next),
    ] : []),
  ].filter(Boolean));

  const onKey = (event) => {
    if (!data.hasKeys || event.metaKey || event.ctrlKey || event.altKey || !host.isConnected || isTyping()) return;
    const opinion = { g: "good", b: "bad" }[event.key];
    if (opinion) send({ verdict: opinion });
    else if (data.moves && ["s", "n", "p"].includes(event.key)) host.querySelector(`a.move[rel="${event.key}"]`)?.click();
    else return;
    event.preventDefault();
  };
  const onClick = (event) => {
    if (!event.composedPath().includes(host)) host.querySelectorAll("details[open]").forEach((each) => each.removeAttribute("open"));
  };
  return listen(host, { keydown: onKey, click: onClick });
}
