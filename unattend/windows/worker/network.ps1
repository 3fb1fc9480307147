# Makes the HNS network that C:\winlab\network.json describes, and what a node needs with it. Not called by winlab: the
# task that cni.ps1 made runs it as SYSTEM, at once and at each start of Windows. The order is that of flannel's
# host-gw.
. (Join-Path $PSScriptRoot 'common.ps1')

$outcome = "$WinlabFolder\network-state.json"

# Windows' own module HostNetworkingService can list and remove networks, but not make them. So this calls what it uses
Add-Type -Namespace 'Winlab' -Name 'Hns' -MemberDefinition @'
[DllImport("vmcompute.dll")]
public static extern int HNSCall([MarshalAs(UnmanagedType.LPWStr)] string method,
    [MarshalAs(UnmanagedType.LPWStr)] string path, [MarshalAs(UnmanagedType.LPWStr)] string request,
    [MarshalAs(UnmanagedType.LPWStr)] out string response);
'@

function Invoke-Hns([string]$Method, [string]$Path, $Data) {
    $request = ''
    if ($Data) { $request = ConvertTo-Json -InputObject $Data -Compress -Depth 8 }
    $response = ''
    # an HRESULT; if it is an error, there may be no answer
    $code = [Winlab.Hns]::HNSCall($Method, $Path, $request, [ref]$response)
    $answer = @{}
    if ($response) { $answer = ConvertFrom-Json -InputObject $response }
    elseif (-not $code) { throw "HNS gives no answer to $Method $Path." }
    if (-not $answer.Success -or [int]$code -lt 0) {
        if ($answer.ErrorCode) { $code = $answer.ErrorCode }
        # HNS answers in the system's language: the number means the same in all of them
        $number = if ($code) { '(0x{0:x8})' -f ([long]$code -band 4294967295) }
        throw ("HNS refuses $Method ${Path}: $($answer.Error)".Trim() + " $number").Trim()
    }
    return $answer.Output
}

function Wait-For([string]$What, [scriptblock]$Test) {
    for ($try = 0; $try -lt 120; $try++) {
        $found = & $Test
        if ($found) { return $found }
        Start-Sleep -Milliseconds 500
    }
    throw "There is no $What after a minute."
}

# When Windows starts, this script may run before HNS is ready
function Get-Network([string]$Name) {
    $answer = Wait-For 'answer of HNS' { try { @{ networks = @(Invoke-Hns 'GET' '/networks/') } } catch { $null } }
    return $answer.networks | Where-Object { $_.Name -eq $Name } | Select-Object -First 1
}

function Get-ManagementAddress([string]$Id) {
    return Wait-For 'management address of the network' { (Invoke-Hns 'GET' "/networks/$Id").ManagementIP }
}

function New-Network($Wish) {
    $subnet = @{ AddressPrefix = $Wish.subnet; GatewayAddress = $Wish.gateway }
    if ($Wish.type -eq 'Overlay') { $subnet['Policies'] = @(@{ Type = 'VSID'; VSID = [int]$Wish.vni }) }
    $data = @{ Name = $Wish.name; Type = $Wish.type; Subnets = @($subnet) }
    $mtu = 0
    if ($Wish.node_address) {
        $index = Get-InterfaceIndex $Wish.node_address
        $data['NetworkAdapterName'] = (Get-NetAdapter -InterfaceIndex $index).Name
        $mtu = (Get-NetIPInterface -InterfaceIndex $index -AddressFamily IPv4).NlMtu
    }
    $network = Invoke-Hns 'POST' '/networks/' $data
    # the new adapter replaces the old one, but does not take its MTU
    if ($mtu) {
        $index = Get-InterfaceIndex (Get-ManagementAddress $network.ID)
        Set-NetIPInterface -InterfaceIndex $index -AddressFamily IPv4 -NlMtuBytes $mtu
    }
    return $network
}

function Get-InterfaceIndex([string]$Address) {
    return Wait-For "adapter with the address $Address" {
        @(Get-NetIPAddress -IPAddress $Address -ErrorAction SilentlyContinue)[0].InterfaceIndex
    }
}

# win-bridge sends pods' packets to the second address of the node's subnet: the node itself must have that address
function Set-HostEndpoint($Wish, $Network) {
    $name = $Wish.endpoint.name
    $address = $Wish.endpoint.address
    $endpoint = @(Invoke-Hns 'GET' '/endpoints/') | Where-Object { $_.Name -eq $name }
    if ($endpoint -and ("$($endpoint.IPAddress)" -ne $address -or "$($endpoint.VirtualNetwork)" -ne "$($Network.ID)")) {
        Invoke-Hns 'DELETE' "/endpoints/$($endpoint.ID)" | Out-Null
        $endpoint = $null
    }
    if (-not $endpoint) {
        $endpoint = Invoke-Hns 'POST' '/endpoints/' @{
            Name = $name; IPAddress = $address; VirtualNetwork = $Network.ID
        }
    }
    # while the virtual switch comes up, a new endpoint can't be attached yet: flannel tries for 5 s
    for ($try = 1; ; $try++) {
        try {
            Invoke-Hns 'POST' "/endpoints/$($endpoint.ID)/attach" @{ SystemType = 'Host'; CompartmentId = 1 } | Out-Null
            return $address
        } catch {
            # whether an endpoint stays attached depends on the release. The number means that it is attached; so does
            # its address on an adapter, whatever HNS answers
            if ($_.Exception.Message -match 'already attached|0x803b0014') { return $address }
            if (Get-NetIPAddress -IPAddress $address -ErrorAction SilentlyContinue) { return $address }
            if ($try -eq 20) { throw }
        }
        Start-Sleep -Milliseconds 500
    }
}

try {
    Start-Transcript -Path "$WinlabFolder\network.log" | Out-Null
    $wish = ConvertFrom-Json -InputObject (Get-Text "$WinlabFolder\network.json")
    $network = Get-Network $wish.name
    $known = @($network.Subnets | ForEach-Object { "$($_.AddressPrefix) $($_.GatewayAddress)" })
    if ($network -and ($network.Type -ne $wish.type -or $known -notcontains "$($wish.subnet) $($wish.gateway)")) {
        Invoke-Hns 'DELETE' "/networks/$($network.ID)" | Out-Null
        $network = $null
    }
    if (-not $network) { $network = New-Network $wish }
    $indexes = @(Get-InterfaceIndex (Get-ManagementAddress $network.ID))
    if ($wish.endpoint) { $indexes += Get-InterfaceIndex (Set-HostEndpoint $wish $network) }
    foreach ($index in $indexes) { Set-NetIPInterface -InterfaceIndex $index -AddressFamily IPv4 -Forwarding Enabled }
    # a running kube-proxy keeps using the network that was removed. If it does not start again, the network still works
    try {
        $id = Get-ProxyNetwork
        if ((Test-ProxyStale) -and (Get-ServiceState 'kube-proxy') -eq 'running') {
            Stop-Running 'kube-proxy' | Out-Null
            Get-HnsPolicyList | Remove-HnsPolicyList
            Start-Service -Name 'kube-proxy'
            Write-Text $ProxyNetwork $id | Out-Null
        }
    } catch {
        "kube-proxy is not started again: $_" | Out-Host
    }
    Write-Text $outcome (ConvertTo-Json -InputObject @{ state = 'done'; id = $network.ID } -Compress) | Out-Null
} catch {
    $failure = ConvertTo-Json -InputObject @{ state = 'failed'; error = $_.Exception.Message } -Compress
    Write-Text $outcome $failure | Out-Null
    "$_" | Out-Host # for the transcript, which is closed before PowerShell shows the error
    throw
} finally {
    try { Stop-Transcript | Out-Null } catch { $null = $_ }
}
